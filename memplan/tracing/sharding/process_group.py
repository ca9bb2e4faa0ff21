"""A process group that sends nothing, the mesh of its ranks, and ``torch.distributed`` as a rank's code meets it."""

import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import wraps
from itertools import count
from typing import Any, Literal

import torch
import torch.distributed as dist
from torch.distributed import device_mesh
from torch.distributed import distributed_c10d as c10d
from torch.distributed.device_mesh import DeviceMesh

from memplan.errors import EstimateError
from memplan.job.parallel import Parallel
from memplan.seam.distributed import FakeStore, clear_DTensor_sharding_propagator_cache, op_dispatcher, random
from memplan.seam.modes import DisableTorchFunction, disable_current_modes
from memplan.seam.patches.sharding import GET_ACCELERATOR, MESH_METHODS, NUMBER_OF_WORK, SET_TIMEOUT, WARN_CPU_INIT
from memplan.seam.replace import Replacement, replaced
from memplan.tracing.sharding.collectives import collectives_of_fakes

MESH_DIMENSIONS = {
    "pp": "pipeline",
    "dp_replicate": "replicas",
    "dp_shard": "shards",
    "cp": "context",
    "tp": "tensor",
}
"""Name of a dimension of the mesh → degree in ``Parallel``; outermost first (torchtitan, distributed/parallel_dims.py
``build_mesh``)."""


@contextmanager
def process_group(parallel: Parallel, rank: int, kind: Literal["cuda", "cpu"]) -> Iterator[DeviceMesh]:
    """Join as one rank of a job; the group is gone again when the context ends.

    The mesh has a dimension for each degree above one, or a single one for one rank.
    """
    with _environment(rank, parallel.ranks), replaced(_meshes_of_real_numbers()):
        dist.init_process_group("fake", store=FakeStore(), rank=rank, world_size=parallel.ranks)
        try:
            mesh = _mesh(parallel, kind)
            with collectives_of_fakes(), replaced((*_as_a_rank_sees_it(), *_accelerator(kind))):
                yield mesh
        finally:
            _forget_meshes()
            dist.destroy_process_group()


def _mesh(parallel: Parallel, kind: str) -> DeviceMesh:
    degrees = {name: getattr(parallel, degree) for name, degree in MESH_DIMENSIONS.items()}
    several = {name: degree for name, degree in degrees.items() if degree > 1}
    several = several or {"dp_replicate" if parallel.data == "ddp" else "dp_shard": 1}
    return device_mesh.init_device_mesh(kind, tuple(several.values()), mesh_dim_names=tuple(several))


@contextmanager
def _environment(rank: int, ranks: int) -> Iterator[None]:
    """What ``torchrun`` tells each of its processes; a trace has one GPU, so every rank is its host's only one."""
    said = {"RANK": rank, "WORLD_SIZE": ranks, "LOCAL_RANK": 0, "LOCAL_WORLD_SIZE": 1}
    told = {name: str(value) for name, value in said.items()} | {"MASTER_ADDR": "localhost", "MASTER_PORT": "29500"}
    former = {name: os.environ.get(name) for name in told}
    os.environ.update(told)
    try:
        yield
    finally:
        for name, value in former.items():
            if value is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = value


def _meshes_of_real_numbers() -> tuple[Replacement, ...]:
    """A mesh computes with tensors of ranks, whose values it reads: they must not become fake."""
    original = device_mesh.init_device_mesh
    make = _without_modes(original)
    # Modules that have imported the function hold a name of their own for it, ``fully_shard``'s among them.
    holders = [each for each in list(sys.modules.values()) if vars(each).get("init_device_mesh") is original]
    return (
        *(Replacement(row.path, _without_modes(vars(DeviceMesh).get(row.name))) for row in MESH_METHODS),
        *(Replacement("*.init_device_mesh", make, holder) for holder in holders),
    )


def _without_modes(method: Any) -> Any:
    match method:
        case property():
            assert method.fget is not None  # noqa: S101 - every property of the class can be read; this tells mypy.
            return property(_without_modes(method.fget))
        case staticmethod() | classmethod():
            return type(method)(_without_modes(method.__func__))
        case _:
            pass

    @wraps(method)
    def call(*args: Any, **kwargs: Any) -> Any:
        # Nor asks anybody here on which device of the trace such a tensor lies.
        with DisableTorchFunction(), disable_current_modes():
            return method(*args, **kwargs)

    return call


def _as_a_rank_sees_it() -> tuple[Replacement, ...]:
    """Code that joins a group finds itself in this one; groups that it makes send nothing either."""
    new_group = c10d.new_group

    @wraps(new_group)
    def fake_group(ranks: Any = None, timeout: Any = None, backend: Any = None, *args: Any, **kwargs: Any) -> Any:
        del backend
        return new_group(ranks, timeout, "fake", *args, **kwargs)

    answers: dict[str, Callable[..., Any]] = {
        "init_process_group": _nothing,
        "destroy_process_group": _nothing,
        "barrier": _nothing,
        "monitored_barrier": _nothing,
        "broadcast_object_list": _nothing,
        "all_gather_object": _gather_object,
        "gather_object": _gather_at_one,
        "recv_object_list": _nothing_comes,
        "is_nccl_available": lambda: True,
        "new_group": fake_group,
    }
    names = (f"{module.__name__}.{name}" for name in answers for module in (dist, c10d))
    return (
        *(Replacement(name, answers[name.rpartition(".")[2]]) for name in names),
        Replacement(SET_TIMEOUT.path, _nothing),
        Replacement(NUMBER_OF_WORK.path, count(1).__next__),
    )


def _accelerator(kind: str) -> tuple[Replacement, ...]:
    """What FSDP1 asks when it is given no ``device_id``: a build of torch for the CPU knows of no GPU.

    Nor is it told that its parameters are on the host: memplan moves the model, as ``.cuda()`` before or behind does.
    """
    if kind != "cuda":
        return ()
    return (
        Replacement(GET_ACCELERATOR.path, lambda *_: torch.device(kind)),
        Replacement(WARN_CPU_INIT.path, _nothing),
    )


def _nothing(*_: object, **__: object) -> None:
    return None


def _nothing_comes(*_: object, **__: object) -> None:
    """Objects that only another rank knows, such as the shapes between stages of a pipeline of the program's own."""
    raise EstimateError(
        "the program receives an object from another rank, and one rank alone is traced",
        hint="a pipeline is traced from its model: --parallel pp=N with a model or a step in a file",
    )


def _gather_object(object_list: list[Any], obj: Any, group: object = None) -> None:
    """Every rank has the same to say."""
    del group
    object_list[:] = [obj] * len(object_list)


def _gather_at_one(obj: Any, object_gather_list: list[Any] | None = None, *_: object, **__: object) -> None:
    """The same, where one rank is told."""
    if object_gather_list is not None:
        _gather_object(object_gather_list, obj)


def _forget_meshes() -> None:
    """What DTensor remembers of ops names groups that are about to end, as does its random generator."""
    if clear_DTensor_sharding_propagator_cache is not None:
        clear_DTensor_sharding_propagator_cache()
    propagator = op_dispatcher.sharding_propagator
    for name in ("propagate_op_sharding", "_propagate_tensor_meta", "_propagate_tensor_meta_cached"):
        remembered = getattr(propagator, name, None)
        # torch 2.6 wraps the first in a class that cannot be cleared itself.
        remembered = getattr(remembered, "cache", remembered)
        getattr(remembered, "cache_clear", _nothing)()
    random._rng_tracker = None
