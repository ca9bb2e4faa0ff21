"""Move one computation."""

from typing import TYPE_CHECKING

from memplan.plan.checkpoint.schedule.annealing.sequence import AcceptanceRule, excess

if TYPE_CHECKING:
    import numpy as np

    from memplan.plan.checkpoint.schedule.annealing.sequence import LiveSequence

REACH = 400
"""Positions that a computation may move at once: bounds the time of a move, not what several of them can do."""


def shift(live: "LiveSequence", computation: int, climate: AcceptanceRule) -> None:
    """Move one computation to a position drawn from all that it can have without changing who reads whom."""
    import numpy as np

    if live.node[computation] >= len(live.problem.order):
        # The sink stands for the end.
        return
    place = int(live.position[computation])
    first, last = _range(live, computation, place)
    if first >= last:
        return
    earlier, own_earlier = _memory_earlier(live, computation, first, place)
    later, own_later = _memory_later(live, computation, place, last)
    before = excess(live.memory[first : last + 1], live.budget)
    here = place - first
    gain_earlier = np.cumsum((excess(earlier, live.budget) - before[:here])[::-1])[::-1]
    gain_later = np.cumsum(excess(later, live.budget) - before[here + 1 :])
    energies = np.zeros(last - first + 1)
    energies[:here] = gain_earlier + excess(own_earlier, live.budget) - before[here]
    energies[here + 1 :] = gain_later + excess(own_later, live.budget) - before[here]
    target = first + climate.draw(climate.weight * energies)
    if target < place:
        live.memory[target + 1 : place + 1] = earlier[target - first :]
        live.memory[target] = own_earlier[target - first]
        live.row[target + 1 : place + 1] = live.row[target:place].copy()
    elif target > place:
        live.memory[place:target] = later[: target - place]
        live.memory[target] = own_later[target - place - 1]
        live.row[place:target] = live.row[place + 1 : target + 1].copy()
    else:
        return
    live.row[target] = computation
    low, high = min(place, target), max(place, target) + 1
    live.position[live.row[low:high]] = np.arange(low, high)
    for source in live.inputs[computation]:
        live.last[source] = live.last_reader(source)


def _range(live: "LiveSequence", computation: int, place: int) -> tuple[int, int]:
    """First and last position that leave every reader its input."""
    # The last position stays as it is: what nothing reads may stand anywhere, and every other has a reader behind it.
    position, first, last = live.position, max(place - REACH, 0), min(place + REACH, len(live.row) - 2)
    for source in live.inputs[computation]:
        first = max(first, int(position[source]) + 1)
        _, after = live.neighbours(source)
        if after is not None:
            last = min(last, int(position[after]) - 1)
    for reader in live.readers[computation]:
        last = min(last, int(position[reader]) - 1)
    before, after = live.neighbours(computation)
    if before is not None:
        first = max(first, live.end(before) + 1)
    if after is not None:
        last = min(last, int(position[after]) - 1)
    return min(first, place), max(last, place)


def _memory_later(live: "LiveSequence", computation: int, place: int, last: int) -> tuple["np.ndarray", "np.ndarray"]:
    """Memory at the positions behind it, should it move past them, and its own, should it come to stand there."""
    import numpy as np

    number = live.node[computation]
    # What nothing reads is alive at its own position only, wherever that is.
    kept = live.sizes[number] if live.readers[computation] else 0.0
    change = np.full(last - place, -kept)
    extra = np.full(last - place, live.load[computation] - kept)
    for source in live.inputs[computation]:
        end = live.end(source)
        if end <= last:
            size = live.sizes[live.node[source]]
            change[end - place :] += size
            extra[max(end - place - 1, 0) :] += size
    behind = slice(place + 2, last + 2)
    entering = live.memory[behind] - live.load[live.row[behind]]
    return live.memory[place + 1 : last + 1] + change, entering + extra


def _memory_earlier(
    live: "LiveSequence", computation: int, first: int, place: int
) -> tuple["np.ndarray", "np.ndarray"]:
    """Memory at the positions before it, should it move in front of them, and its own, should it stand there."""
    import numpy as np

    kept = live.sizes[live.node[computation]] if live.readers[computation] else 0.0
    change = np.full(place - first, kept)
    for source in live.inputs[computation]:
        if live.last[source] == computation:
            end = live.end_without(source, computation)
            change[max(end + 1 - first, 0) :] -= live.sizes[live.node[source]]
    stretch = slice(first, place)
    entering = live.memory[stretch] - live.load[live.row[stretch]]
    return live.memory[stretch] + change, entering + live.load[computation]
