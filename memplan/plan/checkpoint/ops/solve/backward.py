"""An order of backward in which less is alive at once.

Autograd runs backward in the reverse order of forward, whatever that keeps alive: both branches of a product, say,
before what only one of them needs. Between two moments at which little goes from one to the next, the ops may run in
any order that their inputs allow; a beam search looks for the one with the lowest peak.

What of forward is in memory meanwhile depends on the plan, which is made for an order. It is taken that values whose
computation is worth less than their bytes come and go when they are read (``_on_demand``), and that all else that
backward reads is there until its last use.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import pairwise

from memplan.plan.checkpoint.ops.solve.segments import narrows
from memplan.plan.checkpoint.schedule.records import RematGraph, readers_of

WORK = 200_000
"""Partial orders looked at, about two seconds: the beam is as wide as the length of backward then allows."""


def renumbered(graph: RematGraph, order: Sequence[int]) -> RematGraph:
    """Return the same problem with its nodes in another order: every node once, inputs first."""
    place = {node: number for number, node in enumerate(order)}
    return replace(
        graph,
        names=tuple(graph.names[node] for node in order),
        sizes=tuple(graph.sizes[node] for node in order),
        costs=tuple(graph.costs[node] for node in order),
        scratch=tuple(graph.scratch[node] for node in order) if graph.scratch else (),
        predecessors=tuple(tuple(sorted(place[source] for source in graph.predecessors[node])) for node in order),
        pinned=frozenset(place[node] for node in graph.pinned),
        outputs=frozenset(place[node] for node in graph.outputs),
    )


def backward_order(
    graph: RematGraph, boundary: int, companions: Sequence[Sequence[int]], price: float
) -> tuple[int, ...]:
    """Look for an order of backward with low peaks.

    Every node comes once, inputs first; nothing before the boundary moves. Companions follow their node at once; the
    price is the cost that a byte is worth.
    """
    count = len(graph.names)
    search = _Search(graph, boundary, companions, price)
    cuts = narrows(_crossing(graph, boundary, search.readers), boundary + 1, count)
    order = list(range(boundary + 1))
    for before, last in pairwise(sorted({boundary, *cuts, count - 1})):
        order += search.reordered(before + 1, last + 1)
    return tuple(order)


def _crossing(graph: RematGraph, boundary: int, readers: Sequence[Sequence[int]]) -> list[int]:
    """Bytes that go from before each op of backward to after it, gradients left out."""
    changes = [0] * (len(graph.names) + 1)
    for node in range(boundary + 1, len(graph.names)):
        if node not in graph.outputs:
            changes[node] += graph.sizes[node]
            changes[max((node, *readers[node]))] -= graph.sizes[node]
    crossing, alive = [], 0
    for change in changes[:-1]:
        alive += change
        crossing.append(alive)
    return crossing


@dataclass(frozen=True, slots=True)
class _Partial:
    """Some ops of a window in some order."""

    done: int
    """The ops as bits."""
    alive: int
    """Bytes, beyond those at the window's begin, after the last op."""
    peak: int
    """Most of them so far."""
    ops: tuple[int, ...]
    """In order."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Op:
    """One op of a window and its companions."""

    nodes: tuple[int, ...]
    """Of the graph."""
    needs: int
    """Ops of the window that run before, as bits."""
    transient: int
    """Bytes that running it takes on top of what is alive, its result included."""
    stays: int
    """Bytes of its results that anything reads later."""
    read: tuple[int, ...]
    """Values that may end with it."""


class _Search:
    """A graph, prepared for orders of stretches of its backward."""

    def __init__(self, graph: RematGraph, boundary: int, companions: Sequence[Sequence[int]], price: float) -> None:
        self.graph, self.boundary, self.companions = graph, boundary, companions
        self.readers = readers_of(graph.predecessors)
        self.demanded = _on_demand(graph, boundary, self.readers, price)
        self.width = max(4, WORK // max(1, 5 * (len(graph.names) - boundary)))

    def reordered(self, begin: int, end: int) -> list[int]:
        """The best order found of the nodes from one to before another."""
        together = {other for node in range(begin, end) for other in self.companions[node]}
        mains = [node for node in range(begin, end) if node not in together]
        of = {each: bit for bit, node in enumerate(mains) for each in (node, *self.companions[node])}
        users: dict[int, int] = {}
        for bit, node in enumerate(mains):
            for source in self._held(node):
                users[source] = users.get(source, 0) | 1 << bit
        ending = {source: bits for source, bits in users.items() if not self._outlives(source, end)}
        ops = [self._op(node, of, users, ending) for node in mains]
        beam = [_Partial(0, 0, 0, ())]
        for _ in ops:
            longer: dict[int, _Partial] = {}
            for partial in beam:
                for each in self._longer(partial, ops, ending):
                    rival = longer.get(each.done)
                    if rival is None or each.peak < rival.peak:
                        longer[each.done] = each
            beam = sorted(longer.values(), key=lambda partial: (partial.peak, partial.alive))[: self.width]
        own = _Partial(0, 0, 0, ())
        for bit in range(len(ops)):
            own = self._with(own, bit, ops, ending)
        best = min(own, beam[0], key=lambda partial: partial.peak)
        return [node for bit in best.ops for node in ops[bit].nodes]

    def _longer(self, partial: _Partial, ops: list[_Op], ending: dict[int, int]) -> list[_Partial]:
        return [
            self._with(partial, bit, ops, ending)
            for bit, op in enumerate(ops)
            if not partial.done >> bit & 1 and not op.needs & ~partial.done
        ]

    def _with(self, partial: _Partial, bit: int, ops: list[_Op], ending: dict[int, int]) -> _Partial:
        op, done = ops[bit], partial.done | 1 << bit
        ended = sum(self.graph.sizes[source] for source in op.read if not ending[source] & ~done)
        peak = max(partial.peak, partial.alive + op.transient)
        return _Partial(done, partial.alive + op.stays - ended, peak, (*partial.ops, bit))

    def _op(self, node: int, of: dict[int, int], users: dict[int, int], ending: dict[int, int]) -> _Op:
        graph, nodes = self.graph, (node, *self.companions[node])
        held = self._held(node)
        kept = [each for each in nodes if each in users or each in graph.outputs or self.readers[each]]
        return _Op(
            nodes=nodes,
            needs=sum({1 << of[source] for source in held if source in of}),
            transient=self._transient(node),
            stays=sum(graph.sizes[each] for each in kept),
            read=tuple(source for source in held if source in ending),
        )

    def _held(self, node: int) -> set[int]:
        """Return what must be in memory for a node, to be read or to compute again what is read."""
        held: set[int] = set()
        waiting = list(self.graph.predecessors[node])
        while waiting:
            source = waiting.pop()
            if source in self.demanded:
                waiting += self.graph.predecessors[source]
            elif source != self.boundary:
                held.add(source)
        return held

    def _transient(self, node: int) -> int:
        """Bytes for a node, what comes with it, and what is computed again right before it."""
        graph, chain = self.graph, self._chain(node)
        last = {source: reader for reader in (*chain, node) for source in graph.predecessors[reader]}
        alive = peak = 0
        for each in chain:
            alive += graph.sizes[each]
            peak = max(peak, alive + (graph.scratch[each] if graph.scratch else 0))
            alive -= sum(graph.sizes[source] for source in graph.predecessors[each] if self._ends(source, each, last))
        # The scratch of an op holds its further results, too.
        return max(peak, alive + graph.sizes[node] + (graph.scratch[node] if graph.scratch else 0))

    def _ends(self, source: int, reader: int, last: dict[int, int]) -> bool:
        return source in self.demanded and last[source] == reader

    def _chain(self, node: int) -> list[int]:
        """Return what is computed again for a node, in order."""
        found: set[int] = set()
        waiting = list(self.graph.predecessors[node])
        while waiting:
            source = waiting.pop()
            if source in self.demanded and source not in found:
                found.add(source)
                waiting += self.graph.predecessors[source]
        return sorted(found)

    def _outlives(self, value: int, end: int) -> bool:
        """Is a value needed after a window?"""
        if value in self.graph.outputs:
            return True
        waiting = list(self.readers[value])
        while waiting:
            reader = waiting.pop()
            if reader >= end:
                return True
            if reader in self.demanded:
                waiting += self.readers[reader]
        return False


def _on_demand(graph: RematGraph, boundary: int, readers: Sequence[Sequence[int]], price: float) -> set[int]:
    """Values of forward that are worth computing for every read, from what backward reads anyway."""
    read = {node for node in range(boundary) if any(reader > boundary for reader in readers[node])}
    found: set[int] = set()
    for node in range(boundary):
        size, sources = graph.sizes[node], graph.predecessors[node]
        there = all(source in read or (source in found and graph.sizes[source] <= size) for source in sources)
        if there and node not in graph.pinned and graph.costs[node] <= price * size:
            found.add(node)
    return found
