"""Buffers that share whole slots: each slot is as large as its largest buffer, and holds one at a time.

      ▲ ┌───┐┌──────┐         slot 1: as large as the larger one
      │ │ A ││  B   │
      │ ├───┴┴─┬────┤
      │ │  C   │ D  │         slot 0
      └─┴──────┴────┴──► time

What reuse of whole tensors comes to, where memory is not one arena. A slot per colour of the graph whose edges are the
meetings in time (networkx); no plan with slots is below the bound.
"""

import contextlib
import heapq
import itertools
import math
import time
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import zip_longest
from typing import TYPE_CHECKING, TypeVar

from memplan.errors import UsageError
from memplan.plan.reuse.bound import lower_bound, stretches
from memplan.plan.reuse.decompose import placed
from memplan.plan.reuse.records import ArenaBuffer, Problem, Result
from memplan.plan.reuse.result import ended
from memplan.units import Bytes

if TYPE_CHECKING:
    import networkx as nx

T = TypeVar("T")
MANY = 5_000
"""Above this, the graph would not fit memory."""


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


class _TimeOverError(Exception):
    """The time for colourings is over."""


def share_slots(problem: Problem, deadline: float = math.inf) -> Slots:
    """The best plan of several colourings.

    Alignment changes nothing, for slots lie anywhere. The plan that needs no graph is made even after the deadline
    (monotonic clock).

    Raises:
        UsageError: There are too many buffers, or one has a fixed offset.
    """
    if any(buffer.offset is not None for buffer in problem.buffers):
        raise UsageError("slots cannot hold a buffer at a fixed offset")
    buffers = problem.buffers
    if len(buffers) > MANY:
        raise UsageError(f"{len(buffers)} buffers are too many to be coloured; {MANY} are possible")
    bound = slot_bound(problem)
    plans = [_slots(buffers, _equal_sizes(buffers), bound)]
    with contextlib.suppress(_TimeOverError):
        graph = _meetings(buffers, deadline)
        plans.extend(_slots(buffers, colours, bound) for colours in _colourings(graph, buffers, deadline))
    return min(plans, key=lambda plan: plan.total)


def slot_bound(problem: Problem) -> Bytes:
    """The k-th largest slot holds the k-th largest buffer of every moment, or a larger one."""
    most: list[int] = []
    for alive in _alive(problem.buffers):
        most = [max(pair) for pair in zip_longest(most, sorted(alive, reverse=True), fillvalue=0)]
    return Bytes(sum(most))


def solve(problem: Problem, *, time_limit: float) -> Result:
    """The slots as one arena, one on top of the other.

    Raises:
        UsageError: There are too many buffers, or one has a fixed offset.
    """
    plan = share_slots(problem, time.monotonic() + time_limit)
    aligned = math.lcm(*(buffer.alignment for buffer in problem.buffers))
    bases = [0]
    for size in plan.sizes:
        bases.append(-(-(bases[-1] + size) // aligned) * aligned)
    offsets = [bases[slot] if slot >= 0 else 0 for slot in plan.slots]
    return ended(problem, placed(problem.buffers, offsets), lower_bound(problem), method="whole slots")


def _meetings(buffers: Sequence[ArenaBuffer], deadline: float) -> "nx.Graph[int]":
    import networkx as nx

    graph: nx.Graph[int] = nx.Graph()
    alive: set[int] = set()
    for _, begins, index in _timed(_moments(buffers), deadline):
        if begins:
            graph.add_node(index)
            graph.add_edges_from((index, other) for other in alive)
            alive.add(index)
        else:
            alive.remove(index)
    return graph


def _colourings(graph: "nx.Graph[int]", buffers: Sequence[ArenaBuffer], deadline: float) -> Iterator[dict[int, int]]:
    from networkx.algorithms.coloring import greedy_color

    orders: tuple[Callable[[], Iterable[int]], ...] = (
        lambda: sorted(graph, key=lambda i: (-buffers[i].size, buffers[i].start, buffers[i].end, buffers[i].name)),
        lambda: sorted(graph, key=lambda i: -len(graph[i])),
        lambda: reversed(list(_fewest_first(graph, deadline))),
    )
    for order in orders:
        yield greedy_color(graph, strategy=lambda *_, order=order: _timed(order(), deadline))


def _fewest_first(graph: "nx.Graph[int]", deadline: float) -> Iterator[int]:
    """Yield again and again whoever meets the fewest of those that are left."""
    meets = {index: len(others) for index, others in graph.adj.items()}
    waiting = [(count, index) for index, count in meets.items()]
    heapq.heapify(waiting)
    while meets:
        count, index = heapq.heappop(waiting)
        if meets.get(index) != count:
            continue
        del meets[index]
        for other in _timed(graph[index], deadline):
            if other in meets:
                meets[other] -= 1
                heapq.heappush(waiting, (meets[other], other))
        yield index


def _timed(items: Iterable[T], deadline: float) -> Iterator[T]:
    for item in items:
        if time.monotonic() > deadline:
            raise _TimeOverError
        yield item


def _equal_sizes(buffers: Sequence[ArenaBuffer]) -> dict[int, int]:
    """Slots for buffers of one size each, as compilers reuse whole tensors; fewest, but where lifespans have gaps.

    Whoever is born takes a slot that is free again, with as many slots as meet at most; a gap keeps its slot.
    """
    colours: dict[int, int] = {}
    free: defaultdict[int, list[int]] = defaultdict(list)
    ends: list[tuple[int, int, int]] = []
    hulls = [(spans[0][0], spans[-1][1], i) for i, b in enumerate(buffers) if b.size and (spans := list(stretches(b)))]
    slots = itertools.count()
    for start, end, index in sorted(hulls):
        while ends and ends[0][0] <= start:
            _, size, slot = heapq.heappop(ends)
            free[size].append(slot)
        size = buffers[index].size
        colours[index] = free[size].pop() if free[size] else next(slots)
        heapq.heappush(ends, (end, size, colours[index]))
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
