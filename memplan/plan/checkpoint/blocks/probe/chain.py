"""Are the blocks of a traced step a chain?"""

from itertools import pairwise

from memplan.plan.checkpoint.blocks.probe.read import BlockRun, StepReading


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
