"""DeepSpeed in a process that has neither GPUs nor other ranks: what it finds there for the length of a trace."""

import contextlib
import importlib
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any

import torch

from memplan.errors import UsageError
from memplan.files.scratch import scratch_folder
from memplan.job.parallel import Parallel
from memplan.seam.replace import Replacement, attribute, replaced
from memplan.tracing.sharding.world import current as ranks
from memplan.tracing.sharding.zero.disk import Disk
from memplan.tracing.sharding.zero.library import deepspeed
from memplan.tracing.sharding.zero.views import few_views

_STATEFUL = ("deepspeed.comm.comm", "deepspeed.utils.groups", "deepspeed.runtime.zero.partition_parameters")
"""Modules that keep process groups and counters in their globals, which belong to one trace."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DeepSpeedWorld:
    """What is there while the context lasts."""

    library: ModuleType
    """DeepSpeed."""
    disk: Disk
    """What was offloaded to NVMe."""
    directory: Path
    """Stands for the drive; only empty directories are ever made in it."""


_worlds: list[DeepSpeedWorld] = []


def current() -> DeepSpeedWorld:
    """The world that was opened last."""
    return _worlds[-1]


@contextlib.contextmanager
def deepspeed_world(parallel: Parallel) -> Iterator[Disk]:
    """Let DeepSpeed run on the fake tensors of a trace that begins inside.

    All ranks share what DeepSpeed shards. What is offloaded to NVMe is yielded.

    Raises:
        UsageError: DeepSpeed is not installed, or there are other ranks too.
    """
    if parallel.ranks != parallel.shards:
        raise UsageError(f"--parallel {parallel}: ZeRO beside other parallelism is not built yet")
    library, disk = deepspeed(), Disk()
    with contextlib.ExitStack() as stack:
        directory = stack.enter_context(scratch_folder())
        stack.enter_context(on_fake_tensors(disk))
        world = DeepSpeedWorld(library=library, disk=disk, directory=directory)
        _worlds.append(world)
        stack.callback(_worlds.pop)
        yield disk


@contextlib.contextmanager
def on_fake_tensors(disk: Disk) -> Iterator[None]:
    """Let DeepSpeed, which has been imported, run on fake tensors while the context lasts.

    Args:
        disk: Takes what is offloaded to NVMe.
    """
    with contextlib.ExitStack() as stack:
        for name in _STATEFUL:
            stack.enter_context(_globals_of(importlib.import_module(name)))
        stack.enter_context(warnings.catch_warnings())
        # DeepSpeed calls collectives by names that torch is about to drop.
        warnings.filterwarnings("ignore", category=FutureWarning)
        stack.enter_context(replaced((*_table(disk), *few_views())))
        yield


def _table(disk: Disk) -> tuple[Replacement, ...]:
    gpu = importlib.import_module("deepspeed.accelerator.cuda_accelerator").CUDA_Accelerator()
    gpu.available_memory = free_memory
    return (
        # It may have been imported where there was none.
        Replacement("deepspeed.accelerator.real_accelerator.ds_accelerator", gpu),
        Replacement("deepspeed.ops.op_builder.AsyncIOBuilder.load", disk.library),
        # Fake gradients hold no numbers, so whatever is asked of them must not mean that the step is to be skipped.
        *(Replacement(path, _without_overflow(attribute(path))) for path in _OVERFLOWS),
        # Ranks that are not there cannot disagree.
        *(Replacement("deepspeed.*.assert_ints_same_as_other_ranks", _nothing, module) for module in _comparing()),
        # zero.Init puts its own there for good; it is taken away again with the rest.
        Replacement("torch.nn.functional.linear", torch.nn.functional.linear),
    )


_OVERFLOWS = (
    "deepspeed.runtime.zero.stage_1_and_2.DeepSpeedZeroOptimizer.has_overflow",
    "deepspeed.runtime.zero.stage3.DeepSpeedZeroOptimizer_Stage3.has_overflow",
    # What optimizers in half precision ask that shard nothing.
    "deepspeed.runtime.utils.CheckOverflow.has_overflow",
    "deepspeed.runtime.utils.CheckOverflow.check_using_norm",
)


def _comparing() -> tuple[ModuleType, ...]:
    names = ("utils", "partition_parameters", "partitioned_param_coordinator")
    modules = (importlib.import_module(f"deepspeed.runtime.zero.{name}") for name in names)
    return tuple(module for module in modules if hasattr(module, "assert_ints_same_as_other_ranks"))


def free_memory(*_: object) -> int:
    """Bytes of the traced device that nothing holds."""
    recorder = ranks().recorder
    live = sum(size for size, place, _ in recorder.ledger.live_sizes() if place == "device")
    return recorder.device.total_bytes - live


def _nothing(*_: object) -> None:
    return None


def _without_overflow(look: Callable[..., bool]) -> Callable[..., bool]:
    def has_overflow(*args: Any, **kwargs: Any) -> bool:
        look(*args, **kwargs)
        return False

    return has_overflow


@contextlib.contextmanager
def _globals_of(module: ModuleType) -> Iterator[None]:
    """Put a module's plain globals back at the end."""
    kept = {name: value for name, value in vars(module).items() if not callable(value)}
    try:
        yield
    finally:
        vars(module).update(kept)
