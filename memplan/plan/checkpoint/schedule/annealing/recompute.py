"""Compute a value again, and maybe what it is computed from."""

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from memplan.plan.checkpoint.schedule.annealing.sequence import AcceptanceRule, excess

if TYPE_CHECKING:
    import numpy as np

    from memplan.plan.checkpoint.schedule.annealing.sequence import LiveSequence

LONGEST_CHAIN = 8
"""Nodes that one move computes again; longer chains grow move by move."""
DEEPEST_CHAIN = 4
"""Links from the first to the last of them."""
CHAINED = 0.15
"""Share of dead inputs of a value computed again that are computed again too instead of being kept for it."""


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


def recompute(live: "LiveSequence", position: int, climate: AcceptanceRule) -> None:
    """Compute a value, maybe with some inputs, again before its next use instead of keeping it over a position."""
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


def _grow(live: "LiveSequence", chain: _Chain, number: int, climate: AcceptanceRule, depth: int) -> None:
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
