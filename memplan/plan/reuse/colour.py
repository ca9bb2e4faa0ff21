"""Buffers that share whole slots: each slot is as large as its largest buffer, and holds one at a time.

      ▲ ┌───┐┌──────┐         slot 1: as large as the larger one
      │ │ A ││  B   │
      │ ├───┴┴─┬────┤
      │ │  C   │ D  │         slot 0
      └─┴──────┴────┴──► time

What reuse of whole tensors comes to, where memory is not one arena. A slot per colour of the graph whose edges are the
meetings in time (networkx); no plan with slots is below the bound.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import zip_longest
from math import lcm
from typing import TYPE_CHECKING, Any

from memplan.errors import UsageError
from memplan.plan.reuse.bound import lower_bound, stretches
from memplan.plan.reuse.decompose import placed
from memplan.plan.reuse.records import ArenaBuffer, Problem, Result
from memplan.plan.reuse.result import ended
from memplan.units import Bytes

if TYPE_CHECKING:
    import networkx as nx

MANY = 5_000
"""Above this, the graph would not fit memory."""
STRATEGIES = ("size", "smallest_last", "largest_first")
"""In which order buffers choose the first slot that is free: largest buffers first, or as networkx names it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Slots:
    """A plan with slots."""

    slots: tuple[int, ...]
    """Per buffer: its slot; -1 where it needs none."""
    sizes: tuple[int, ...]
    """Per slot: bytes of its largest buffer."""
    bound: Bytes
    """No plan with slots has fewer bytes."""

    @property
    def total(self) -> Bytes:
        """Bytes of all slots."""
        return Bytes(sum(self.sizes))


def share_slots(problem: Problem) -> Slots:
    """The best plan of several colourings.

    Args:
        problem: Buffers without fixed offsets; their alignment changes nothing, for slots lie anywhere.

    Raises:
        UsageError: There are too many buffers, or one has a fixed offset.
    """
    if any(buffer.offset is not None for buffer in problem.buffers):
        raise UsageError("slots cannot hold a buffer at a fixed offset")
    graph, bound = _meetings(problem.buffers), slot_bound(problem)
    plans = (_slots(problem.buffers, colours, bound) for colours in _colourings(graph, problem.buffers))
    return min(plans, key=lambda plan: plan.total)


def slot_bound(problem: Problem) -> Bytes:
    """The k-th largest slot holds the k-th largest buffer of every moment, or a larger one."""
    most: list[int] = []
    for alive in _alive(problem.buffers):
        most = [max(pair) for pair in zip_longest(most, sorted(alive, reverse=True), fillvalue=0)]
    return Bytes(sum(most))


def solve(problem: Problem, *, time_limit: float) -> Result:  # noqa: ARG001 - the signature of all solvers.
    """The slots as one arena, one on top of the other.

    Raises:
        UsageError: There are too many buffers, or one has a fixed offset.
    """
    plan = share_slots(problem)
    aligned = lcm(*(buffer.alignment for buffer in problem.buffers))
    bases = [0]
    for size in plan.sizes:
        bases.append(-(-(bases[-1] + size) // aligned) * aligned)
    offsets = [bases[slot] if slot >= 0 else 0 for slot in plan.slots]
    return ended(problem, placed(problem.buffers, offsets), lower_bound(problem), method="whole slots")


def _meetings(buffers: Sequence[ArenaBuffer]) -> "nx.Graph[int]":
    if len(buffers) > MANY:
        raise UsageError(f"{len(buffers)} buffers are too many to be coloured; {MANY} are possible")
    import networkx as nx

    graph: nx.Graph[int] = nx.Graph()
    alive: set[int] = set()
    for _, begins, index in _moments(buffers):
        if begins:
            graph.add_node(index)
            graph.add_edges_from((index, other) for other in alive)
            alive.add(index)
        else:
            alive.remove(index)
    return graph


def _colourings(graph: "nx.Graph[int]", buffers: Sequence[ArenaBuffer]) -> Iterator[dict[int, int]]:
    from networkx.algorithms.coloring import greedy_color

    def by_size(graph: Any, colours: Any) -> list[int]:  # noqa: ARG001 - networkx calls it so.
        return sorted(graph, key=lambda i: (-buffers[i].size, buffers[i].start, buffers[i].end, buffers[i].name))

    for strategy in STRATEGIES:
        yield greedy_color(graph, strategy=by_size if strategy == "size" else strategy)
    yield _equal_sizes(graph, buffers)


def _equal_sizes(graph: "nx.Graph[int]", buffers: Sequence[ArenaBuffer]) -> dict[int, int]:
    """Slots for buffers of one size each, as compilers reuse whole tensors; fewest, but where lifespans have gaps.

    Lifespans of one size are an interval graph, which greedy colouring in order of birth colours with as few as meet.
    """
    from networkx.algorithms.coloring import greedy_color

    def by_birth(graph: Any, colours: Any) -> list[int]:  # noqa: ARG001 - networkx calls it so.
        return sorted(graph, key=lambda i: (buffers[i].start, i))

    colours: dict[int, int] = {}
    for size in sorted({buffers[i].size for i in graph}):
        alike = graph.subgraph([i for i in graph if buffers[i].size == size])
        first = max(colours.values(), default=-1) + 1
        colours |= {i: first + colour for i, colour in greedy_color(alike, strategy=by_birth).items()}
    return colours


def _slots(buffers: Sequence[ArenaBuffer], colours: dict[int, int], bound: Bytes) -> Slots:
    sizes = [0] * (max(colours.values(), default=-1) + 1)
    for index, colour in colours.items():
        sizes[colour] = max(sizes[colour], buffers[index].size)
    return Slots(slots=tuple(colours.get(i, -1) for i in range(len(buffers))), sizes=tuple(sizes), bound=bound)


def _moments(buffers: Sequence[ArenaBuffer]) -> list[tuple[int, int, int]]:
    """Moment, whether bytes come (1) or go (0), buffer; in order, those that go first."""
    spans = [(span, index) for index, b in enumerate(buffers) if b.size for span in stretches(b)]
    return sorted((moment, begins, i) for (start, end), i in spans for moment, begins in ((start, 1), (end, 0)))


def _alive(buffers: Sequence[ArenaBuffer]) -> Iterator[list[int]]:
    """Sizes of who is alive, whenever it is most."""
    alive: dict[int, int] = {}
    grown = False
    for _, begins, index in _moments(buffers):
        if begins:
            alive[index] = buffers[index].size
        elif grown:
            yield list(alive.values())
        if not begins:
            del alive[index]
        grown = bool(begins)
