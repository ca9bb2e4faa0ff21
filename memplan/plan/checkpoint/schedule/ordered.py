"""The form in which the solvers see a problem: one sink, no constant memory, nodes numbered in the order to be used."""

from collections.abc import Sequence
from dataclasses import dataclass

from memplan.plan.checkpoint.schedule.records import RematGraph, Schedule, readers_of


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
