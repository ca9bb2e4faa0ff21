"""Three changes of a schedule: move a computation, compute a value again, do so no longer.

Each one works out what it would do to the sum of the cost and ``weight`` times the bytes above the budget, over all
positions, and does it or leaves it. Memory is only looked at where it would change, all positions of a stretch at once.
"""

import math
from dataclasses import dataclass, field
from random import Random
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import numpy as np

    from memplan.plan.checkpoint.graph.sequence import LiveSequence

REACH = 400
"""Positions that a computation may move at once: bounds the time of a move, not what several of them can do."""
LONGEST_CHAIN = 8
"""Nodes that one move computes again; longer chains grow move by move."""
DEEPEST_CHAIN = 4
"""Links from the first to the last of them."""
CHAINED = 0.15
"""Share of dead inputs of a value computed again that are computed again too instead of being kept for it."""


@dataclass(slots=True, kw_only=True)
class Climate:
    """What decides whether a change is made."""

    temperature: float
    """In units of cost; a change that costs this much more is made about once in three times."""
    weight: float
    """Cost per byte above the budget and position."""
    random: Random
    """Seeded."""
    noise: "np.ndarray"
    """Standard Gumbel noise: the least of ``energy - temperature * noise`` is a draw from Boltzmann's distribution."""

    def accepts(self, change: float) -> bool:
        """Metropolis' rule."""
        return change <= 0 or self.random.random() < math.exp(-change / self.temperature)

    def draw(self, energies: "np.ndarray") -> int:
        """Draw one of several states by their energies."""
        offset = self.random.randrange(len(self.noise) - len(energies))
        return int((energies - self.temperature * self.noise[offset : offset + len(energies)]).argmin())


def excess(memory: "np.ndarray", budget: float) -> "np.ndarray":
    """Bytes above the budget at each position."""
    import numpy as np

    return np.maximum(memory - budget, 0.0)


def shift(live: "LiveSequence", computation: int, climate: Climate) -> None:
    """Move one computation to a position drawn from all that it can have without changing who reads whom.

    Args:
        live: The schedule, changed in place.
        computation: Which to move.
        climate: Decides.
    """
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


def forget(live: "LiveSequence", computation: int, climate: Climate) -> None:
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


@dataclass(slots=True)
class _Chain:
    """Values to be computed again right before a reader."""

    place: int
    """Where the reader stands."""
    nodes: list[int] = field(default_factory=list)
    """In order."""
    found: set[int] = field(default_factory=set)
    """The same, and those about to join."""
    sources: dict[int, int] = field(default_factory=dict)
    """Node to the computation that serves it, for inputs that are not computed again."""
    kept: dict[int, int] = field(default_factory=dict)
    """Of those the ones that have to be kept longer, with the end of their life so far."""


def recompute(live: "LiveSequence", position: int, climate: Climate) -> None:
    """Compute a value, and maybe some of its inputs, again before its next use instead of keeping it over a position.

    Args:
        live: The schedule, changed in place.
        position: Where memory is short.
        climate: Decides, and draws the value.
    """
    alive = live.row[:position]
    alive = alive[live.position[live.last[alive]] > position]
    if not len(alive):
        return
    computation = int(alive[int(climate.random.random() * len(alive))])
    number = live.node[computation]
    uses = [int(live.position[reader]) for reader in live.readers[computation]]
    last_use = max((use for use in uses if use < position), default=None)
    if number in live.problem.pinned or position in uses or last_use is None:
        return
    place = min(use for use in uses if use > position)
    chain = _Chain(place=place, found={number})
    _grow(live, chain, number, climate, 0)
    low = min([last_use, *chain.kept.values()]) + 1
    memory, own = _chain_memory(live, chain, low, last_use)
    change = excess(memory, live.budget).sum() - excess(live.memory[low:place], live.budget).sum()
    energy = climate.weight * float(change + excess(own, live.budget).sum())
    energy += sum(live.problem.costs[node] for node in chain.nodes)
    if len(chain.nodes) <= len(live.spare) and climate.accepts(energy):
        live.memory[low:place] = memory
        _insert(live, chain, own)


def _grow(live: "LiveSequence", chain: _Chain, number: int, climate: Climate, depth: int) -> None:
    for needed in live.problem.predecessors[number]:
        if needed in chain.sources or needed in chain.found:
            continue
        source = live.latest_before(needed, chain.place)
        end = live.end(source)
        again = end < chain.place and climate.random.random() < CHAINED and needed not in live.problem.pinned
        if again and depth < DEEPEST_CHAIN and len(chain.found) < LONGEST_CHAIN:
            chain.found.add(needed)
            _grow(live, chain, needed, climate, depth + 1)
            continue
        chain.sources[needed] = source
        if end < chain.place:
            chain.kept[source] = end
    chain.nodes.append(number)


def _chain_memory(live: "LiveSequence", chain: _Chain, low: int, last_use: int) -> tuple["np.ndarray", "np.ndarray"]:
    """Memory up to the reader, and at the chain's own positions."""
    import numpy as np

    size_of = live.sizes
    ends = {node: index for index, node in enumerate(chain.nodes)}
    starts = dict(ends)
    for index, node in enumerate(chain.nodes):
        for needed in live.problem.predecessors[node]:
            if needed in starts or chain.sources[needed] in chain.kept:
                ends[needed] = index
    freed = size_of[chain.nodes[-1]]
    memory = live.memory[low : chain.place].copy()
    memory[last_use + 1 - low :] -= freed
    for source, end in chain.kept.items():
        memory[end + 1 - low :] += size_of[live.node[source]]
    entering = float(live.memory[chain.place] - live.load[live.row[chain.place]]) - freed
    own = np.array([entering + live.scratch[node] for node in chain.nodes])
    for node, end in ends.items():
        own[starts.get(node, 0) : end + 1] += size_of[node]
    return memory, own


def _insert(live: "LiveSequence", chain: _Chain, own: "np.ndarray") -> None:
    import numpy as np

    place, count = chain.place, len(chain.nodes)
    entered = {node: live.spare.pop() for node in chain.nodes}
    live.row = np.concatenate((live.row[:place], list(entered.values()), live.row[place:]))
    live.memory = np.concatenate((live.memory[:place], own, live.memory[place:]))
    live.position[live.row[place:]] = np.arange(place, len(live.row))
    for node, computation in entered.items():
        inputs = [entered.get(needed, chain.sources.get(needed, -1)) for needed in live.problem.predecessors[node]]
        live.enter(computation, node, inputs)
        _take_readers(live, live.latest_before(node, place), computation, place + count)
        live.extra += live.problem.costs[node]


def _take_readers(live: "LiveSequence", old: int, new: int, begin: int) -> None:
    """Readers from a position on are served by the new computation of the same node."""
    moved = [reader for reader in live.readers[old] if live.position[reader] >= begin]
    live.readers[old] = [reader for reader in live.readers[old] if live.position[reader] < begin]
    live.last[old] = live.last_reader(old)
    for reader in moved:
        live.inputs[reader][live.inputs[reader].index(old)] = new
    live.readers[new] += moved
    live.last[new] = live.last_reader(new)
    copies = live.copies[live.node[new]]
    copies.insert(copies.index(old) + 1, new)
