"""Which values to compute again in a given order: Checkmate's program, compressed to the moments that matter.

Stage ``t`` computes node ``t`` for the first time, and before it whatever is computed again for it. The *events* of a
value ``i`` are the stages where something may read it; between two events nothing about it can change, so instead of
one variable per stage there are::

    again[i, t]     i is computed again in stage t, for an event t of i
    kept[i, k]      i stays in memory from its event k-1 (or its first computation) up to its event k

    kept[i, k]  <= kept[i, k-1] + again[i, event k-1]                        something there to keep
    1           <= kept[i, k(v)] + again[i, v]              for i -> v       v can be computed
    again[v, t] <= kept[i, k(t)] + again[i, t]              for i -> v       v can be computed again
    size[t] + scratch[t] + sum over i of size[i] * (kept[i, gap of t] + again[i, t]) <= capacity[t]

and the cost of all ``again`` is minimised. Two things restrict it: chains of values computed again only for each other
have at most ``hops`` links, and everything computed again in a stage counts as if it stayed to the stage's end. A
solution is therefore feasible; its optimum bounds only schedules of the same form.
"""

from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING

from memplan.plan.checkpoint.schedule.highs import BinaryProgram, solve_binary

if TYPE_CHECKING:
    from collections.abc import Sequence

    import numpy as np

    from memplan.plan.checkpoint.schedule.ordered import OrderedProblem

INFINITY = float("inf")


@dataclass(frozen=True, slots=True, kw_only=True)
class GapSolution:
    """The solution of the program, and its bound."""

    numbers: list[int] | None
    """The schedule in the problem's numbers; None: none was found."""
    extra_cost: float
    """Cost of what is computed again; infinite without a schedule."""
    extra_bound: float
    """No solution of the program costs less; infinite if it has none."""
    proven: bool
    """Optimal, or infeasible, for the program."""


def solve_gaps(
    problem: "OrderedProblem",
    capacity: "Sequence[int]",
    *,
    hops: int,
    time_limit: float,
    threads: int,
    start: "Sequence[int] | None" = None,
) -> GapSolution:
    """Solve the program once.

    Chains of recomputations have ``hops`` links at most, 0 or more; ``start`` has this order of first computations.
    Building the program comes on top of the time limit.
    """
    program = GapProgram(problem, capacity, hops)
    solution = solve_binary(
        program.program,
        time_limit=time_limit,
        threads=threads,
        start=program.values_of(start) if start is not None else None,
    )
    if solution.chosen is None:
        return GapSolution(numbers=None, extra_cost=INFINITY, extra_bound=solution.bound, proven=solution.proven)
    numbers = program.numbers_of(solution.chosen)
    extra = sum(problem.costs[number] for number in numbers) - sum(problem.costs)
    return GapSolution(numbers=numbers, extra_cost=extra, extra_bound=solution.bound, proven=solution.proven)


class GapProgram:
    """The program of one order, its variables by what they mean."""

    def __init__(self, problem: "OrderedProblem", capacity: "Sequence[int]", hops: int) -> None:
        self.problem = problem
        self.program = BinaryProgram()
        self.stages = again_stages(problem, hops)
        self.events = [
            sorted(stages.keys() | set(readers))
            for stages, readers in zip(self.stages, problem.successors, strict=True)
        ]
        self.again = [
            {stage: self.program.variable(problem.costs[node]) for stage in sorted(stages)}
            for node, stages in enumerate(self.stages)
        ]
        self.kept = [{stage: self.program.variable() for stage in stages} for stages in self.events]
        for node in range(len(problem.sizes)):
            self._keep(node)
            self._supply(node)
        self._memory(capacity)

    def _keep(self, node: int) -> None:
        for before, after in pairwise(self.events[node]):
            sources = [self.kept[node][before]]
            if before in self.again[node]:
                sources.append(self.again[node][before])
            self.program.row([self.kept[node][after], *sources], [1.0] + [-1.0] * len(sources), -INFINITY, 0.0)

    def _supply(self, node: int) -> None:
        for source in self.problem.predecessors[node]:
            self.program.row(*self._there(source, node, 1.0), 1.0, INFINITY)
            for stage, again in self.again[node].items():
                indices, values = self._there(source, stage, -1.0)
                self.program.row([again, *indices], [1.0, *values], -INFINITY, 0.0)

    def _there(self, node: int, stage: int, sign: float) -> tuple[list[int], list[float]]:
        """Terms of "the value is in memory in the stage"; a stage that is not an event of it has none."""
        indices = [table[stage] for table in (self.kept[node], self.again[node]) if stage in table]
        return indices, [sign] * len(indices)

    def _memory(self, capacity: "Sequence[int]") -> None:
        sizes, scratch = self.problem.sizes, self.problem.scratch
        entries: list[tuple[list[int], list[float]]] = [([], []) for _ in sizes]
        for node, size in enumerate(sizes):
            begin = node + 1
            for stage in self.events[node]:
                for inside in range(begin, stage + 1):
                    entries[inside][0].append(self.kept[node][stage])
                    entries[inside][1].append(float(size))
                begin = stage + 1
            for stage, variable in self.again[node].items():
                entries[stage][0].append(variable)
                entries[stage][1].append(float(size + scratch[node]))
        unit = max(max(sizes) / 1000, 1e-3)
        for stage, (indices, values) in enumerate(entries):
            room = capacity[stage] - sizes[stage] - scratch[stage]
            if sum(values) > room:
                self.program.row(indices, [value / unit for value in values], -INFINITY, room / unit)

    def numbers_of(self, chosen: "np.ndarray") -> list[int]:
        """Read a schedule off a solution."""
        by_stage: list[list[int]] = [[] for _ in self.problem.sizes]
        for node, stages in enumerate(self.again):
            for stage, variable in stages.items():
                if chosen[variable]:
                    by_stage[stage].append(node)
        return [number for stage, nodes in enumerate(by_stage) for number in (*nodes, stage)]

    def values_of(self, numbers: "Sequence[int]") -> dict[int, float]:
        """Say a schedule, whose first computations come in this order, in the program's variables.

        What it computes again where the program cannot is left out; the program checks whether the values fit together.
        """
        ones: set[int] = set()
        stage = 0
        there: dict[int, int] = {}
        for number in numbers:
            for source in self.problem.predecessors[number]:
                ones.update(self.kept[source][event] for event in self.events[source] if there[source] < event <= stage)
            if number != stage and stage in self.again[number]:
                ones.add(self.again[number][stage])
            there[number] = stage
            stage += number == stage
        return {variable: float(variable in ones) for variable in range(len(self.program.costs))}


def again_stages(problem: "OrderedProblem", hops: int) -> list[dict[int, int]]:
    """For each node, the stages where computing it again may serve something, with the links of the chain so far.

    Chains have ``hops`` links at most. A pinned node has no stages.
    """
    stages: list[dict[int, int]] = [{} for _ in problem.sizes]
    for node in reversed(range(len(problem.sizes))):
        if node in problem.pinned:
            continue
        for reader in problem.successors[node]:
            # The next stage has the value in memory anyway.
            if reader > node + 1:
                stages[node][reader] = 0
            for stage, links in stages[reader].items():
                if links < hops:
                    stages[node][stage] = min(stages[node].get(stage, hops), links + 1)
    return stages


def slack(problem: "OrderedProblem", numbers: "Sequence[int]") -> list[int]:
    """Bytes by which the program overstates each stage of a schedule.

    The first computations of the schedule come in the problem's order.
    """
    ends, birth = list(range(len(numbers))), dict[int, int]()
    for place, number in enumerate(numbers):
        for source in problem.predecessors[number]:
            ends[birth[source]] = place
        birth[number] = place
    stages = _stages(numbers)
    counted, true = [0] * len(problem.sizes), [0] * len(problem.sizes)
    for stage, (first, last) in enumerate(stages):
        again = sum(problem.sizes[number] + problem.scratch[number] for number in numbers[first:last])
        alive = [place for place in range(last + 1) if ends[place] >= first]
        before = sum(problem.sizes[numbers[place]] for place in alive if place < first)
        counted[stage] = before + again + problem.sizes[stage] + problem.scratch[stage]
        true[stage] = max(
            sum(problem.sizes[numbers[place]] for place in alive if place <= now <= ends[place])
            + problem.scratch[numbers[now]]
            for now in range(first, last + 1)
        )
    return [max(0, nbytes - exact) for nbytes, exact in zip(counted, true, strict=True)]


def _stages(numbers: "Sequence[int]") -> list[tuple[int, int]]:
    """First and last position of each stage; the last one computes the stage's node for the first time."""
    stages: list[tuple[int, int]] = []
    first = 0
    for place, number in enumerate(numbers):
        if number == len(stages):
            stages.append((first, place))
            first = place + 1
    return stages
