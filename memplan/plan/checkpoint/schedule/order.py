"""An order of computation with a low peak, nothing being computed twice: beam search over sets of computed nodes."""

from dataclasses import dataclass

from memplan.plan.checkpoint.schedule.records import RematGraph, readers_of

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
