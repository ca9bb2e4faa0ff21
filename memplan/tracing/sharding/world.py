"""What a trace of one of several ranks runs in."""

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.tensor import DTensor
from torch.optim.optimizer import register_optimizer_step_pre_hook

from memplan.job.parallel import ALONE, Parallel
from memplan.seam.distributed import FSDPParam
from memplan.seam.patches.sharding import CAST_LABELS, GATHERED_PARAMETER, HAS_MEMORY, RESET_SHARD, SAME_STORAGE
from memplan.seam.replace import Replacement, attribute, replaced
from memplan.tracing.recorder import Recorder
from memplan.tracing.sharding.buckets import working_reducers
from memplan.tracing.sharding.dtensors import following_local_tensors
from memplan.tracing.sharding.process_group import process_group


@dataclass(frozen=True, slots=True, kw_only=True)
class World:
    """The rank that is traced, and those around it."""

    parallel: Parallel
    """All ranks."""
    rank: int
    """Which one this is."""
    mesh: DeviceMesh
    """The ranks by dimension (``process_group.MESH_DIMENSIONS``)."""
    recorder: Recorder
    """Watches the step."""

    @property
    def assume(self) -> Callable[[str], None]:
        """Note a sentence for the report."""
        return self.recorder.values.assume


_WORLDS: list[World] = []


def current() -> World:
    """The world of the trace that runs now.

    Raises:
        LookupError: It has one rank alone.
    """
    if not _WORLDS:
        raise LookupError("this trace is of one rank alone")
    return _WORLDS[-1]


@contextmanager
def world(parallel: Parallel, rank: int, recorder: Recorder) -> Iterator[World | None]:
    """Put a trace among the ranks of its job.

    The recorder must be entered already. One rank alone is in no world (None), and nothing happens to it.
    """
    if parallel == ALONE:
        yield None
        return
    with ExitStack() as stack:
        mesh = stack.enter_context(process_group(parallel, rank, recorder.device.kind))
        stack.enter_context(following_local_tensors(recorder))
        stack.enter_context(comparing_storages())
        stack.enter_context(casting_labels(recorder))
        stack.enter_context(working_reducers(recorder))
        stack.enter_context(claiming_gradients(recorder))
        stack.enter_context(claiming_gathered(recorder))
        here = World(parallel=parallel, rank=rank, mesh=mesh, recorder=recorder)
        _WORLDS.append(here)
        stack.callback(_WORLDS.remove, here)
        yield here


@contextmanager
def comparing_storages() -> Iterator[None]:
    """Let FSDP tell storages apart, which it does by their addresses: fake ones have none."""
    table = (
        Replacement(
            RESET_SHARD.path,
            _reset_once(attribute(RESET_SHARD.path)),
        ),
        Replacement(SAME_STORAGE.path, lambda a, b: _storage(a)._cdata == _storage(b)._cdata),
        Replacement(HAS_MEMORY.path, lambda tensor: _storage(tensor).nbytes() > 0),
    )
    with replaced(table):
        yield


@contextmanager
def casting_labels(recorder: Recorder) -> Iterator[None]:
    """Let ``loss_parallel`` ask labels for their device as user code does: it runs inside of an operator."""
    cast = attribute(CAST_LABELS.path)

    def asking(*args: Any) -> Any:
        with recorder.user_code():
            return cast(*args)

    with replaced((Replacement(CAST_LABELS.path, asking),)):
        yield


def _reset_once(reset: Callable[[FSDPParam], None]) -> Callable[[FSDPParam], None]:
    """FSDP2 pads a shard again unless it finds its own padded memory behind the parameter."""

    def reset_unless_same(sharded: FSDPParam) -> None:
        found = getattr(sharded._module_info.module, sharded._module_info.param_name)
        is_known = found is sharded.sharded_param and not found.is_meta
        if not is_known or _storage(found)._cdata != sharded._sharded_param_data.untyped_storage()._cdata:
            reset(sharded)

    return reset_unless_same


def _storage(tensor: torch.Tensor) -> torch.UntypedStorage:
    return (tensor._local_tensor if isinstance(tensor, DTensor) else tensor).untyped_storage()


@contextmanager
def claiming_gradients(recorder: Recorder) -> Iterator[None]:
    """Tell the recorder of every gradient that an optimizer is about to read."""

    def claim(optimizer: torch.optim.Optimizer, *_: object) -> None:
        for group in optimizer.param_groups:
            for parameter in group["params"]:
                if parameter.grad is not None:
                    recorder.references.claim(parameter.grad, role="gradient", of=parameter)

    handle = register_optimizer_step_pre_hook(claim)
    try:
        yield
    finally:
        handle.remove()


@contextmanager
def claiming_gathered(recorder: Recorder) -> Iterator[None]:
    """Tell the recorder that what FSDP2 gathers a parameter into is that parameter, too."""
    prepare: Callable[..., None] = attribute(GATHERED_PARAMETER.path)

    def prepare_and_claim(sharded: FSDPParam, *args: Any, **kwargs: Any) -> None:
        prepare(sharded, *args, **kwargs)
        for gathered in sharded.all_gather_outputs:
            recorder.references.claim(gathered, role="parameter", of=sharded.sharded_param)

    with replaced((Replacement(GATHERED_PARAMETER.path, prepare_and_claim),)):
        yield
