"""A cheap schedule within a budget: bounds, the program of the given order, and annealing, one after the other."""

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from memplan.plan.checkpoint.schedule.annealing.anneal import Cooling, anneal
from memplan.plan.checkpoint.schedule.bound import greatest_need, least_extra_cost
from memplan.plan.checkpoint.schedule.deadline import Deadline
from memplan.plan.checkpoint.schedule.figures import figures_of, unplanned
from memplan.plan.checkpoint.schedule.gap_ilp import again_stages, slack, solve_gaps
from memplan.plan.checkpoint.schedule.ordered import OrderedProblem, low_peak_order, ordered, useful
from memplan.plan.checkpoint.schedule.records import (
    FeasibleSchedule,
    InfeasibleSchedule,
    NoSchedule,
    OptimalSchedule,
    RematGraph,
    Schedule,
    ScheduleFigures,
    ScheduleResult,
)
from memplan.units import Bytes

HOPS = (1, 3, 6, 10, 15)
"""Links of chains of recomputations that the program may use, tried in turn."""
MOST_VARIABLES = 30_000
"""Of the program; a larger one would spend the time on being built."""
MOVES_PER_SECOND = 15_000
"""Moves of annealing that a second is worth, so that a result depends on the seed rather than on the machine."""
MOVES_PER_NODE = 1_000
"""Length of a run of annealing where there is time for more than one."""
FIRST_MOVES_PER_NODE = 120
"""Length of a first run of annealing, which says whether the given order is worth more than others."""
BOUND_SHARE, GAPS_SHARE, AHEAD_SHARE, QUENCH_SHARE = 0.15, 0.4, 0.8, 0.9
"""Shares of the time up to which may work: the bound and a first run of annealing; the program of the given order; the
same while it is worth staying with; all runs of annealing but the last."""
WORTH_STAYING = 2.0
"""Cost of recomputation over its bound up to which the given order is not worth leaving."""
COOL = Cooling(moves=0, temperatures=(0.5, 0.01), weights=(30.0, 3000.0))
"""From where most schedules are alike to where only the best neighbour is taken."""
WARM = Cooling(moves=0, temperatures=(0.6, 0.3), weights=(20.0, 200.0))
"""Lingers where small rugged problems change over from one valley to another."""
QUENCH = Cooling(moves=0, temperatures=(0.1, 0.003), weights=(300.0, 100_000.0))
"""Refines the best schedule."""
EQUAL = 1e-9
"""Costs that differ by less, relatively, are the same."""


def solve_schedule(
    graph: RematGraph,
    budget: int,
    *,
    time_limit: float = 30.0,
    threads: int = 2,
    seed: int = 0,
    known: Sequence[Schedule] = (),
    clock: Callable[[], float] = time.monotonic,
) -> ScheduleResult:
    """Look for the cheapest schedule whose peak is within a budget.

    Args:
        graph: The problem.
        budget: Bytes that may be alive at once, ``fixed_bytes`` included.
        time_limit: Seconds by the clock after which nothing new is begun.
        threads: Of the integer programming solver.
        seed: Of annealing. Unless time gets short, the same seed gives the same result.
        known: Valid schedules, of a smaller budget for example: the result is no worse than any of them that fits.
        clock: Tells seconds.

    Returns:
        Optimal if the bound over every schedule is reached; else the best that was found, with what is known of it.
    """
    misfit = _misfit(graph, budget)
    if misfit is not None:
        return misfit
    race = _Race(graph, budget, Deadline(clock, time_limit), threads=threads, seed=seed, known=known)
    race.run()
    return race.result()


def _misfit(graph: RematGraph, budget: int) -> InfeasibleSchedule | None:
    """The node that takes most by itself, if that is over the budget."""
    scratch = graph.scratch or (0,) * len(graph.names)
    alone = [
        graph.fixed_bytes + graph.sizes[node] + scratch[node] + sum(graph.sizes[source] for source in sources)
        for node, sources in enumerate(graph.predecessors)
    ]
    # All outputs are there together when the last of them is computed.
    for output in sorted(graph.outputs)[-1:]:
        alone[output] = max(alone[output], graph.fixed_bytes + sum(graph.sizes[node] for node in graph.outputs))
    worst = max(range(len(alone)), key=alone.__getitem__, default=None)
    if worst is None or alone[worst] <= budget:
        return None
    return InfeasibleSchedule(node=worst, least_bytes=Bytes(alone[worst]))


_INFINITY = float("inf")


@dataclass(frozen=True, slots=True)
class _Bound:
    cost: float
    holds_for: str


class _Race:
    """The best schedule so far, what bounds it, and the methods that try to beat it."""

    def __init__(
        self,
        graph: RematGraph,
        budget: int,
        deadline: Deadline,
        *,
        threads: int,
        seed: int,
        known: Sequence[Schedule],
    ) -> None:
        self._graph, self._budget, self._deadline = graph, budget, deadline
        self._threads, self._seed = threads, seed
        self._base = sum(graph.costs)
        self._best: tuple[Schedule, ScheduleFigures] | None = None
        self._leanest: tuple[Schedule, ScheduleFigures] | None = None
        self._bound = _Bound(self._base, "every schedule")
        self._order_bound: _Bound | None = None
        self._infeasible: InfeasibleSchedule | None = None
        self._room = budget - graph.fixed_bytes
        self._told = bool(known)
        for schedule in (unplanned(graph), *known):
            self.offer(schedule)

    def _offer_numbers(self, problem: OrderedProblem, numbers: Sequence[int]) -> None:
        # A program computes things again for nothing where they cost nothing.
        self.offer(problem.schedule(useful(problem, numbers)))

    def offer(self, schedule: Schedule) -> None:
        """Keep a schedule if it is the cheapest that fits, or the leanest of all."""
        figures = figures_of(self._graph, schedule)
        if self._leanest is None or figures.peak_bytes < self._leanest[1].peak_bytes:
            self._leanest = schedule, figures
        if figures.peak_bytes <= self._budget and (self._best is None or figures.cost < self._best[1].cost):
            self._best = schedule, figures

    def run(self) -> None:
        """Try one method after the other until the bound is met or the time is over."""
        if self._met():
            return
        self.offer(Schedule(nodes=low_peak_order(self._graph)))
        if self._met():
            return
        limit = self._deadline.solver_seconds(BOUND_SHARE)
        extra = least_extra_cost(self._graph, self._budget, time_limit=max(limit, 0.1), threads=self._threads)
        self._bound = _Bound(self._base + extra, "every schedule")
        if extra == _INFINITY:
            self._name_infeasible(limit)
            return
        problem = ordered(self._graph, range(len(self._graph.names)))
        for method in (self._anneal_briefly, self._gaps, self._anneal):
            if not self._met():
                method(problem)

    def _name_infeasible(self, limit: float) -> None:
        node, nbytes = greatest_need(self._graph, self._budget, time_limit=max(limit, 1.0), threads=self._threads)
        if nbytes > self._budget:
            self._infeasible = InfeasibleSchedule(node=node, least_bytes=Bytes(nbytes))

    def result(self) -> ScheduleResult:
        """Return the best schedule, and what is known of all others."""
        if self._infeasible:
            return self._infeasible
        if self._best is None:
            return NoSchedule(best=self._feasible(self._leanest) if self._leanest else None)
        schedule, figures = self._best
        if self._met():
            return OptimalSchedule(schedule=schedule, figures=figures)
        return self._feasible(self._best)

    def _feasible(self, found: tuple[Schedule, ScheduleFigures]) -> FeasibleSchedule:
        schedule, figures = found
        bound = self._bound
        # What holds for one order only is worth saying where it says more and the schedule does not refute it.
        if self._order_bound and bound.cost < self._order_bound.cost <= figures.cost * (1 + EQUAL):
            bound = self._order_bound
        known = bound.cost < _INFINITY
        return FeasibleSchedule(
            schedule=schedule,
            figures=figures,
            bound_cost=min(bound.cost, figures.cost) if known else None,
            bound_for=bound.holds_for if known else "",
        )

    def _met(self) -> bool:
        return self._best is not None and self._best[1].cost <= self._bound.cost * (1 + EQUAL)

    def _gaps(self, problem: OrderedProblem) -> None:
        """The program of the given order, with longer chains each time."""
        numbers: list[int] | None = None
        bound = _INFINITY
        for hops in HOPS:
            left = self._deadline.solver_seconds(self._gaps_share(problem, numbers))
            if left <= 0 or self._met() or sum(map(len, again_stages(problem, hops))) > MOST_VARIABLES:
                break
            capacity = [self._room] * len(problem.sizes)
            solution = solve_gaps(problem, capacity, hops=hops, time_limit=left, threads=self._threads, start=numbers)
            chains = f"chains of at most {hops + 1} recomputations"
            self._order_bound = _Bound(
                self._base + solution.extra_bound, f"this order of nodes, {chains}, all kept to the end of their stage"
            )
            if solution.numbers is not None:
                numbers = solution.numbers
                self._offer_numbers(problem, numbers)
            if solution.extra_bound == bound < _INFINITY and numbers and not self._is_best(problem, numbers):
                # Longer chains do not help, and another order is cheaper.
                break
            bound = solution.extra_bound
        if numbers is not None:
            self._tighten(problem, numbers, hops)

    def _gaps_share(self, problem: OrderedProblem, numbers: Sequence[int] | None) -> float:
        """More time while the given order is ahead and the bound leaves others little to gain."""
        ahead = numbers is not None and self._is_best(problem, numbers) and self._is_near_bound()
        return AHEAD_SHARE if ahead else GAPS_SHARE

    def _is_near_bound(self) -> bool:
        least = self._bound.cost - self._base
        return self._best is not None and self._best[1].cost - self._base <= WORTH_STAYING * least

    def _is_best(self, problem: OrderedProblem, numbers: Sequence[int]) -> bool:
        cost = sum(problem.costs[number] for number in useful(problem, numbers))
        return self._best is not None and cost <= self._best[1].cost * (1 + EQUAL)

    def _tighten(self, problem: OrderedProblem, numbers: list[int], hops: int) -> None:
        """Give each stage the bytes back that the program counts in vain, and solve again."""
        left = self._deadline.solver_seconds(self._gaps_share(problem, numbers))
        in_order = list(dict.fromkeys(numbers)) == list(range(len(problem.sizes)))
        if left <= 0 or self._met() or not in_order or not self._is_best(problem, numbers):
            return
        capacity = [self._room + nbytes for nbytes in slack(problem, numbers)]
        solution = solve_gaps(problem, capacity, hops=hops, time_limit=left, threads=self._threads, start=numbers)
        if solution.numbers is not None:
            self._offer_numbers(problem, solution.numbers)

    def _anneal_briefly(self, problem: OrderedProblem) -> None:
        self._anneal_once(
            problem, replace(COOL, moves=FIRST_MOVES_PER_NODE * len(problem.sizes)), share=BOUND_SHARE, run=0
        )

    def _anneal(self, problem: OrderedProblem) -> None:
        """Cool and warm runs in turn from the given order, then a last one from the best schedule.

        Where that is near the bound, or comes from the caller, there is more to be won around it.
        """
        total = int(MOVES_PER_SECOND * self._deadline.seconds)
        runs = max(1, round(total * QUENCH_SHARE / (MOVES_PER_NODE * len(problem.sizes))))
        length = max(1, int(total * QUENCH_SHARE / runs))
        begin = self._deadline.spent() / self._deadline.seconds
        for run in range(runs):
            share = begin + (QUENCH_SHARE - begin) * (run + 1) / runs
            cooling, start = WARM if run % 2 else COOL, None
            if self._best and (self._is_near_bound() or (self._told and run == 0)):
                cooling, start = QUENCH, self._best[0]
            self._anneal_once(problem, replace(cooling, moves=length), share=share, run=run + 1, start=start)
            if self._met():
                return
        best = self._best or self._leanest
        if best:
            quench = replace(QUENCH, moves=max(1, int(total * (1 - QUENCH_SHARE))))
            self._anneal_once(problem, quench, share=1.0, run=runs + 1, start=best[0])

    def _anneal_once(
        self, problem: OrderedProblem, cooling: Cooling, *, share: float, run: int, start: Schedule | None = None
    ) -> None:
        annealed = anneal(
            problem,
            problem.numbers(start or unplanned(self._graph)),
            self._room,
            cooling,
            seed=self._seed * 1000 + run,
            elapsed=self._deadline.stretch(share),
        )
        for numbers in (annealed.numbers, annealed.last):
            if numbers is not None:
                self._offer_numbers(problem, numbers)
