"""The form in which solvers see a problem (one sink, no constant memory), and an order of low peak by beam search."""

from collections.abc import Sequence
from dataclasses import dataclass

from memplan.plan.checkpoint.schedule.records import RematGraph, Schedule, readers_of

WORK = 100_000
"""Partial orders looked at by default, about a second: the beam is as wide as the graph then allows."""


@dataclass(frozen=True, slots=True)
class _Partial:
    """Some nodes in some order; two of them with the same nodes differ only in the peak."""

    done: int
    """The nodes as bits."""
    ready: tuple[int, ...]
    """Nodes that can come next."""
    alive: int
    """Bytes kept after the last node."""
    peak: int
    """Most bytes so far."""
    before: "_Partial | None"
    """Without the last node."""
    node: int
    """The last node."""


@dataclass(frozen=True, slots=True, kw_only=True)
class OrderedProblem:
    """A graph whose nodes are renumbered by an order of computation.

    Where the graph has outputs, a last node of no size and no cost reads them all: a value that must be there at the
    end is then an ordinary input of something.
    """

    order: tuple[int, ...]
    """The graph's node behind each number; the sink is not among them."""
    sizes: tuple[int, ...]
    """Bytes of each value."""
    scratch: tuple[int, ...]
    """Bytes needed only while a node is computed."""
    costs: tuple[float, ...]
    """Time of computing each."""
    predecessors: tuple[tuple[int, ...], ...]
    """What each node reads."""
    successors: tuple[tuple[int, ...], ...]
    """Who reads each node."""
    pinned: frozenset[int]
    """Nodes that run exactly once; the sink is one."""

    def schedule(self, numbers: Sequence[int]) -> Schedule:
        """Translate a sequence of this problem's numbers back, the sink left out."""
        return Schedule(nodes=tuple(self.order[number] for number in numbers if number < len(self.order)))

    def numbers(self, schedule: Schedule) -> list[int]:
        """Translate a schedule of the graph into this problem's numbers, the sink appended if there is one."""
        place = {node: number for number, node in enumerate(self.order)}
        return [place[node] for node in schedule.nodes] + list(range(len(self.order), len(self.sizes)))


def ordered(graph: RematGraph, order: Sequence[int]) -> OrderedProblem:
    """Renumber a graph by an order with every predecessor before its node.

    Its ``fixed_bytes`` are to be taken off the budget by the caller.
    """
    place = {node: number for number, node in enumerate(order)}
    predecessors = [tuple(sorted(place[source] for source in graph.predecessors[node])) for node in order]
    sink = [tuple(sorted(place[node] for node in graph.outputs))] if graph.outputs else []
    predecessors += sink
    return OrderedProblem(
        order=tuple(order),
        sizes=tuple(graph.sizes[node] for node in order) + (0,) * len(sink),
        scratch=tuple(graph.scratch[node] if graph.scratch else 0 for node in order) + (0,) * len(sink),
        costs=tuple(graph.costs[node] for node in order) + (0.0,) * len(sink),
        predecessors=tuple(predecessors),
        successors=tuple(map(tuple, readers_of(predecessors))),
        pinned=frozenset(place[node] for node in graph.pinned) | frozenset(range(len(order), len(predecessors))),
    )


def useful(problem: OrderedProblem, numbers: Sequence[int]) -> list[int]:
    """Leave out computations that nothing reads, unless they are the only ones of their node.

    The schedule that is left takes no more memory anywhere and costs no more.
    """
    copies = [0] * len(problem.sizes)
    for number in numbers:
        copies[number] += 1
    wanted: set[int] = set()
    kept: list[int] = []
    for number in reversed(numbers):
        if number not in wanted and copies[number] > 1:
            copies[number] -= 1
            continue
        wanted.discard(number)
        wanted.update(problem.predecessors[number])
        kept.append(number)
    return kept[::-1]


def low_peak_order(graph: RematGraph, *, width: int | None = None) -> tuple[int, ...]:
    """Look for an order with a low peak.

    Every node comes once, inputs first; it is never worse than the graph's own order. ``width`` partial orders are kept
    of each length; None: as many as about a second allows.
    """
    search = _Search(graph)
    count = len(graph.names)
    width = width or max(4, WORK // max(1, count * 5))
    beam = [search.start]
    for _ in range(count):
        # Of two ways to the same set only the lower peak can matter: what is alive is the same.
        best: dict[int, _Partial] = {}
        for partial in beam:
            for longer in search.longer(partial):
                rival = best.get(longer.done)
                if rival is None or longer.peak < rival.peak:
                    best[longer.done] = longer
        beam = sorted(best.values(), key=lambda partial: (partial.peak, partial.alive))[:width]
    own = search.start
    for node in range(count):
        own = next(longer for longer in search.longer(own) if longer.node == node)
    return _nodes(min((own, *beam[:1]), key=lambda partial: partial.peak))


def _nodes(partial: _Partial) -> tuple[int, ...]:
    nodes: list[int] = []
    while partial.before is not None:
        nodes.append(partial.node)
        partial = partial.before
    return tuple(reversed(nodes))


class _Search:
    """The graph, prepared for growing partial orders."""

    def __init__(self, graph: RematGraph) -> None:
        count = len(graph.names)
        readers = readers_of(graph.predecessors)
        # A bit beyond all nodes stands for the end, which reads the outputs and is never done.
        bits = [sum(1 << reader for reader in readers[node]) for node in range(count)]
        self._readers = [bits[node] | (node in graph.outputs) << count for node in range(count)]
        self._needs = [sum(1 << source for source in sources) for sources in graph.predecessors]
        self._next = readers
        self._graph = graph
        ready = tuple(node for node, sources in enumerate(graph.predecessors) if not sources)
        self.start = _Partial(0, ready, graph.fixed_bytes, 0, None, -1)

    def longer(self, partial: _Partial) -> list[_Partial]:
        """All partial orders with one node more."""
        return [self._with(partial, node) for node in partial.ready]

    def _with(self, partial: _Partial, node: int) -> _Partial:
        graph, done = self._graph, partial.done | 1 << node
        during = partial.alive + graph.sizes[node]
        freed = sum(graph.sizes[source] for source in graph.predecessors[node] if not self._readers[source] & ~done)
        freed += 0 if self._readers[node] else graph.sizes[node]
        ready = [other for other in partial.ready if other != node]
        ready += [reader for reader in self._next[node] if not self._needs[reader] & ~done]
        scratch = graph.scratch[node] if graph.scratch else 0
        return _Partial(done, tuple(ready), during - freed, max(partial.peak, during + scratch), partial, node)
