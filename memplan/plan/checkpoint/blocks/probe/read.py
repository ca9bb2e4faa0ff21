"""Read from a traced step which storages are alive in which stretch, and which of them blocks pass on."""

from collections import Counter, defaultdict
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import NamedTuple

from memplan.plan.checkpoint.blocks.probe.cut import Cut
from memplan.tracing.records import Op, Storage, Trace
from memplan.units import StorageId

ROUNDING = 512
"""Bytes that a CUDA block is a multiple of (c10/core/AllocatorConfig.h kMinBlockSize)."""


class Creation(NamedTuple):
    """Names a storage by what makes it, the same in every trace of the block."""

    op: str
    """``aten.mm.default``."""
    call: int
    """Which call of it within this run of the block's forward."""
    place: int
    """Which of the storages that this call allocates."""


class Life(NamedTuple):
    """A device storage of the last step."""

    nbytes: int
    """As the allocator rounds."""
    born: int
    """Stretch that allocates it; -1: before the step."""
    died: int
    """Stretch that frees it; the number of stretches: after the step."""
    died_op: int = -1
    """Op during or after which it is freed; -1: after the step."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BlockRun:
    """One forward of a block and its backward, in one trace."""

    forward: int
    """Stretch of its forward."""
    backward: int
    """Stretch of its backward."""
    arguments: tuple[StorageId, ...]
    """What it uses in forward and other stretches of the same step made in theirs, in order of first use."""
    results: Mapping[Creation, StorageId]
    """What its forward makes and leaves alive at its end."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StepReading:
    """A traced step, read for a plan."""

    trace: Trace
    """The trace."""
    cut: Cut
    """Its last step in stretches."""
    lives: Mapping[StorageId, Life]
    """Device storages that the step allocates or frees."""
    uses: Mapping[StorageId, frozenset[int]]
    """Stretches whose ops read or write a storage."""
    runs: tuple[tuple[BlockRun, ...], ...]
    """For each block its runs, as ``Cut.spans``."""


def rounding(trace: Trace) -> Callable[[int], int]:
    """Return how the device's allocator rounds a size."""
    if trace.device.kind == "cpu":
        return lambda nbytes: nbytes
    return lambda nbytes: -(-nbytes // ROUNDING) * ROUNDING


def read(trace: Trace, cut: Cut) -> StepReading:
    """Read a cut trace."""
    lives, uses = _lives(trace, cut), _uses(trace, cut)
    made = _Makers(trace)
    runs = tuple(tuple(_run(trace, cut, lives, made, span) for span in spans) for spans in cut.spans)
    return StepReading(trace=trace, cut=cut, lives=lives, uses=uses, runs=runs)


def _lives(trace: Trace, cut: Cut) -> dict[StorageId, Life]:
    size, count = rounding(trace), len(cut.stretches)
    lives: dict[StorageId, Life] = {}
    for index, stretch in enumerate(cut.stretches):
        for action, storage, op in trace.events[stretch.first_event : stretch.end_event]:
            entry = trace.storages[storage]
            if entry.place != "device":
                continue
            if action == "alloc":
                lives[storage] = Life(size(entry.nbytes), index, count)
            else:
                lives[storage] = lives.get(storage, Life(size(entry.nbytes), -1, count))._replace(
                    died=index, died_op=op
                )
    return lives


def _uses(trace: Trace, cut: Cut) -> dict[StorageId, frozenset[int]]:
    uses: dict[StorageId, set[int]] = defaultdict(set)
    for index, stretch in enumerate(cut.stretches):
        for op in trace.ops[stretch.first_op : stretch.end_op]:
            for storage in (*op.reads, *op.writes):
                uses[storage].add(index)
    return {storage: frozenset(places) for storage, places in uses.items()}


class _Makers:
    """Names storages by what makes them."""

    def __init__(self, trace: Trace) -> None:
        self._born: dict[int, list[Storage]] = defaultdict(list)
        for storage in trace.storages:
            self._born[storage.birth].append(storage)

    def of(self, ops: tuple[Op, ...]) -> dict[StorageId, Creation]:
        calls: Counter[str] = Counter()
        named: dict[StorageId, Creation] = {}
        for op in ops:
            for place, storage in enumerate(self._born.get(op.index, ())):
                named[storage.id] = Creation(op.name, calls[op.name], place)
            calls[op.name] += 1
        return named


def _run(trace: Trace, cut: Cut, lives: Mapping[StorageId, Life], makers: _Makers, span: tuple[int, int]) -> BlockRun:
    forward, backward = span
    stretch = cut.stretches[forward]
    ops = trace.ops[stretch.first_op : stretch.end_op]
    used = dict.fromkeys(storage for op in ops for storage in (*op.reads, *op.writes))
    count = len(cut.stretches)
    arguments = tuple(
        storage
        for storage in used
        if storage in lives and 0 <= lives[storage].born < forward and lives[storage].died < count
    )
    results = {
        name: storage
        for storage, name in makers.of(ops).items()
        if storage in lives and lives[storage].born == forward < lives[storage].died
    }
    return BlockRun(forward=forward, backward=backward, arguments=arguments, results=results)
