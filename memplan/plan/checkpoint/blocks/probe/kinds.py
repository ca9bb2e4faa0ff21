"""What a reading says of its blocks: their kinds, whether they are a chain, and names of positions for people."""

from collections.abc import Hashable
from itertools import pairwise

from memplan.plan.checkpoint.blocks.probe.cut import Cut, Stretch
from memplan.plan.checkpoint.blocks.probe.read import BlockRun, StepReading
from memplan.tracing.records import Trace

_MOST_MODULES = 2
"""Modules that the name of a stretch between blocks lists."""


def kinds_of(reading: StepReading) -> tuple[int, ...]:
    """A number for each block; blocks have the same one where their forwards run the same ops on the same sizes."""
    seen: dict[Hashable, int] = {}
    return tuple(
        seen.setdefault(tuple(_structure(reading, name, run) for run in runs), len(seen))
        for name, runs in zip(reading.cut.modules, reading.runs, strict=True)
    )


def _structure(reading: StepReading, name: str, run: BlockRun) -> Hashable:
    stretch = reading.cut.stretches[run.forward]
    number: dict[int, int] = {}
    ops = tuple(
        (
            op.name,
            op.module.removeprefix(name),
            op.flops,
            op.bytes_moved,
            tuple(number.setdefault(storage, len(number)) for storage in (*op.reads, *op.writes)),
        )
        for op in reading.trace.ops[stretch.first_op : stretch.end_op]
    )
    return ops, tuple(reading.lives[storage].nbytes for storage in run.arguments)


def is_chain(reading: StepReading) -> bool:
    """Does each block pass exactly one tensor on, to the next one alone, all else being made before the first block?"""
    counts = {len(runs) for runs in reading.runs}
    if len(reading.runs) < 2 or len(counts) > 1:
        return False
    return all(_is_row(reading, [runs[index] for runs in reading.runs]) for index in range(counts.pop()))


def _is_row(reading: StepReading, runs: list[BlockRun]) -> bool:
    start = runs[0].forward
    for before, after in pairwise(runs):
        between = reading.cut.stretches[before.forward + 1 : after.forward]
        made = set(before.results.values())
        taken = [storage for storage in after.arguments if storage in made]
        late = [storage for storage in after.arguments if reading.lives[storage].born >= start]
        used_by = {
            stretch
            for storage in made
            for stretch in reading.uses.get(storage, ())
            if stretch not in (before.forward, before.backward)
        }
        is_next = len(taken) == 1 and late == taken and used_by <= {after.forward, after.backward}
        if not is_next or any(each.end_op > each.first_op for each in between):
            return False
    return True


def position_name(trace: Trace, cut: Cut, index: int) -> str:
    """``forward of layers.3``, ``backward of lm_head``, ``optimizer``; ``forward after layers.3`` outside modules."""
    stretch = cut.stretches[index]
    if stretch.block is not None:
        return f"{stretch.phase} of {cut.modules[stretch.block]}"
    if stretch.phase == "optimizer":
        return "optimizer"
    modules = dict.fromkeys(op.module for op in trace.ops[stretch.first_op : stretch.end_op] if op.module)
    if modules:
        more = " and others" if len(modules) > _MOST_MODULES else ""
        return f"{stretch.phase} of {', '.join(list(modules)[:_MOST_MODULES])}{more}"
    before = next((each for each in reversed(cut.stretches[:index]) if each.block is not None), None)
    return f"{stretch.phase} {_after(cut, before)}"


def _after(cut: Cut, before: Stretch | None) -> str:
    if before is None or before.block is None:
        return "before the first block"
    return f"after {cut.modules[before.block]}"
