"""What a trace of one of several ranks runs in."""

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass

from torch.distributed.device_mesh import DeviceMesh

from memplan.job.parallel import ALONE, Parallel
from memplan.tracing.recorder import Recorder
from memplan.tracing.sharding.buckets import working_reducers
from memplan.tracing.sharding.dtensors import following_local_tensors
from memplan.tracing.sharding.gradients import claiming_gathered, claiming_gradients
from memplan.tracing.sharding.process_group import process_group
from memplan.tracing.sharding.storages import comparing_storages


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

    Args:
        parallel: The job's ranks.
        rank: Which one is traced.
        recorder: Watches the step; it must be entered already.

    Yields:
        The world; None for one rank alone, to which nothing happens.
    """
    if parallel == ALONE:
        yield None
        return
    with ExitStack() as stack:
        mesh = stack.enter_context(process_group(parallel, rank, recorder.device.kind))
        stack.enter_context(following_local_tensors(recorder))
        stack.enter_context(comparing_storages())
        stack.enter_context(working_reducers(recorder))
        stack.enter_context(claiming_gradients(recorder))
        stack.enter_context(claiming_gathered(recorder))
        here = World(parallel=parallel, rank=rank, mesh=mesh, recorder=recorder)
        _WORLDS.append(here)
        stack.callback(_WORLDS.remove, here)
        yield here
