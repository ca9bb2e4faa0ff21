"""Small graphs, random schedules of them, and searches that need no cleverness."""

import heapq
import itertools
from collections.abc import Iterator

from hypothesis import strategies as st

from memplan.plan.checkpoint.schedule.records import RematGraph, Schedule


@st.composite
def graphs(draw: st.DrawFn, *, most: int = 6, plain: bool = False) -> RematGraph:
    """Any graph; a plain one has no scratch, constant memory, pinned nodes or outputs."""
    count = draw(st.integers(1, most))
    small = st.integers(0, 9)
    nodes = range(count)
    subset = st.just(frozenset[int]()) if plain else st.frozensets(st.sampled_from(nodes), max_size=2)
    none = st.just(())
    return RematGraph(
        names=tuple(f"n{node}" for node in nodes),
        sizes=tuple(draw(small) for _ in nodes),
        costs=tuple(float(draw(small)) for _ in nodes),
        predecessors=tuple(tuple(sorted(draw(st.sets(st.integers(0, node - 1))))) if node else () for node in nodes),
        scratch=draw(none if plain else st.one_of(none, st.tuples(*[small] * count))),
        fixed_bytes=0 if plain else draw(small),
        pinned=draw(subset),
        outputs=draw(subset),
    )


@st.composite
def schedules(draw: st.DrawFn, graph: RematGraph) -> Schedule:
    """Valid schedules, with recomputation wherever it happens to fall."""
    done: list[int] = []
    while len(set(done)) < len(graph.names):
        possible = [
            node
            for node, sources in enumerate(graph.predecessors)
            if set(sources) <= set(done) and not (node in graph.pinned and node in done)
        ]
        fresh = [node for node in possible if node not in done]
        done.append(draw(st.sampled_from(possible if len(done) < 3 * len(graph.names) else fresh)))
    return Schedule(nodes=tuple(done))


def cheapest(graph: RematGraph, budget: int) -> float | None:
    """The least cost of any schedule in any order, by Dijkstra over what was computed and what is in memory."""
    everything = frozenset(range(len(graph.names)))
    scratch = graph.scratch or (0,) * len(graph.names)
    queue: list[tuple[float, int, frozenset[int], frozenset[int]]] = [(0.0, 0, frozenset(), frozenset())]
    seen: set[tuple[frozenset[int], frozenset[int]]] = set()
    ticket = itertools.count(1)
    while queue:
        cost, _, done, resident = heapq.heappop(queue)
        if done == everything and graph.outputs <= resident:
            return cost
        if (done, resident) in seen:
            continue
        seen.add((done, resident))
        for node, sources in enumerate(graph.predecessors):
            if not set(sources) <= resident or node in resident or (node in graph.pinned and node in done):
                continue
            during = resident | {node}
            if graph.fixed_bytes + sum(graph.sizes[value] for value in during) + scratch[node] > budget:
                continue
            for after in _subsets(during):
                heapq.heappush(queue, (cost + graph.costs[node], next(ticket), done | {node}, after))
    return None


def cheapest_by_stages(graph: RematGraph, budget: int) -> float | None:
    """The least cost in the graph's own order, if nothing leaves memory within a stage."""
    count = len(graph.names)
    queue: list[tuple[float, int, int, frozenset[int]]] = [(0.0, 0, 0, frozenset())]
    seen: set[tuple[int, frozenset[int]]] = set()
    ticket = itertools.count(1)
    while queue:
        cost, _, stage, kept = heapq.heappop(queue)
        if stage == count:
            return cost
        if (stage, kept) in seen:
            continue
        seen.add((stage, kept))
        for again in _subsets(frozenset(range(stage)) - kept):
            during = kept | again | {stage}
            complete = all(set(graph.predecessors[node]) <= during for node in (*again, stage))
            if not complete or again & graph.pinned or sum(graph.sizes[value] for value in during) > budget:
                continue
            spent = cost + graph.costs[stage] + sum(graph.costs[node] for node in again)
            for after in _subsets(during):
                heapq.heappush(queue, (spent, next(ticket), stage + 1, after))
    return None


def _subsets(values: frozenset[int]) -> Iterator[frozenset[int]]:
    for size in range(len(values) + 1):
        yield from map(frozenset, itertools.combinations(sorted(values), size))
