"""Group blocks of equal structure into kinds."""

from collections.abc import Hashable

from memplan.plan.checkpoint.blocks.probe.read import BlockRun, StepReading


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
