"""Which blocks are alike."""

from collections.abc import Hashable

from memplan.plan.checkpoint.blocks.probe.read import Reading, Run


def kinds_of(reading: Reading) -> tuple[int, ...]:
    """A number for each block; blocks have the same one where their forwards run the same ops on the same sizes.

    Args:
        reading: The unplanned step.
    """
    seen: dict[Hashable, int] = {}
    return tuple(
        seen.setdefault(tuple(_structure(reading, name, run) for run in runs), len(seen))
        for name, runs in zip(reading.cut.modules, reading.runs, strict=True)
    )


def _structure(reading: Reading, name: str, run: Run) -> Hashable:
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
