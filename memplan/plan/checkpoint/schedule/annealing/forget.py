"""Compute something once less."""

from typing import TYPE_CHECKING

from memplan.plan.checkpoint.schedule.annealing.acceptance import AcceptanceRule, excess

if TYPE_CHECKING:
    from memplan.plan.checkpoint.schedule.annealing.sequence import LiveSequence


def forget(live: "LiveSequence", computation: int, climate: AcceptanceRule) -> None:
    """Compute something once less: an earlier computation serves its readers instead.

    Args:
        live: The schedule, changed in place.
        computation: Which to leave out; the first of a node is never left out.
        climate: Decides.
    """
    before, _ = live.neighbours(computation)
    if before is None:
        return
    place, number = int(live.position[computation]), live.node[computation]
    ends = {source: live.end_without(source, computation) for source in live.inputs[computation]}
    kept_from = live.end(before) + 1
    low = min([kept_from, *(end + 1 for source, end in ends.items() if live.last[source] == computation)])
    memory = live.memory[low:place].copy()
    memory[kept_from - low :] += live.sizes[number] if live.readers[computation] else 0.0
    for source, end in ends.items():
        if live.last[source] == computation:
            memory[end + 1 - low :] -= live.sizes[live.node[source]]
    change = float(excess(memory, live.budget).sum() - excess(live.memory[low : place + 1], live.budget).sum())
    if not climate.accepts(climate.weight * change - live.problem.costs[number]):
        return
    live.memory[low:place] = memory
    readers = live.readers[computation]
    for reader in readers:
        live.inputs[reader][live.inputs[reader].index(computation)] = before
    live.readers[before] += readers
    live.last[before] = live.last[computation]
    live.readers[computation] = []
    _take_out(live, computation)


def _take_out(live: "LiveSequence", computation: int) -> None:
    """Remove a computation that nothing reads, and then those that only it read."""
    import numpy as np

    place, inputs = int(live.position[computation]), live.inputs[computation]
    live.row, live.memory = np.delete(live.row, place), np.delete(live.memory, place)
    live.position[live.row[place:]] -= 1
    live.leave(computation)
    for source in inputs:
        copies = live.copies[live.node[source]]
        if not live.readers[source] and len(copies) > 1:
            # It was kept up to here for nothing else; ``forget`` has taken that off already, so it stands alone.
            for own in live.inputs[source]:
                end = live.end_without(own, source)
                if live.last[own] == source:
                    live.memory[end + 1 : int(live.position[source])] -= live.sizes[live.node[own]]
            _take_out(live, source)
