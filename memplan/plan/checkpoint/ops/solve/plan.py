"""Search a schedule of a joint graph within a budget."""

import time

from memplan.plan.checkpoint.ops.capture.problem import JointProblem
from memplan.plan.checkpoint.ops.solve.backward import backward_order, renumbered
from memplan.plan.checkpoint.ops.solve.bound import least_again
from memplan.plan.checkpoint.ops.solve.lazy import lazy_schedule
from memplan.plan.checkpoint.schedule.figures import figures_of, unplanned
from memplan.plan.checkpoint.schedule.records import (
    FeasibleSchedule,
    InfeasibleSchedule,
    NoSchedule,
    OptimalSchedule,
    Schedule,
    ScheduleResult,
)
from memplan.plan.checkpoint.schedule.solve import solve_schedule

INFINITY = float("inf")
EVERY_SCHEDULE = "every schedule that computes gradients once"
"""What the bound holds for."""
LAZY_SHARE, BOUND_SHARE = 0.6, 0.2
"""Of the time; what is left goes to annealing and to the program of the whole graph, where that is small enough."""
MOST_NODES = 1200
"""Of a graph that these improve."""
EQUAL = 1e-6
"""Costs that differ by less, relatively, are the same."""


def plan_joint(problem: JointProblem, budget: int, *, time_limit: float = 30.0, threads: int = 2) -> ScheduleResult:
    """Look for the cheapest schedule of a joint graph within a budget.

    The budget is for all that is alive at once: parameters, arguments, activations and gradients.

    Returns:
        The best schedule found, as it will run, and what is known of all others.
    """
    graph, end = problem.graph, time.monotonic() + time_limit
    figures = figures_of(graph, unplanned(graph))
    if figures.peak_bytes <= budget:
        return OptimalSchedule(schedule=unplanned(graph), figures=figures)
    is_small = len(graph.names) <= MOST_NODES
    share = LAZY_SHARE if is_small else 1 - BOUND_SHARE
    extra = least_again(graph, problem.boundary, budget, time_limit=time_limit * BOUND_SHARE, threads=threads)
    price = extra / (figures.peak_bytes - budget) if extra < INFINITY else 0.0
    best, leanest = _reordered(problem, budget, price, time_limit=time_limit * share, threads=threads)
    left = end - time.monotonic()
    if best is None or (is_small and left > 0):
        known = [leanest] if best is None else [best]
        result = solve_schedule(graph, budget, time_limit=max(left, 1.0), threads=threads, known=known)
        if isinstance(result, InfeasibleSchedule):
            return result
        if isinstance(result, OptimalSchedule | FeasibleSchedule):
            best = _cheaper(problem, best, result.schedule, budget)
    return _answer(problem, best, leanest, sum(graph.costs) + extra)


def _reordered(
    problem: JointProblem, budget: int, price: float, *, time_limit: float, threads: int
) -> tuple[Schedule | None, Schedule]:
    """Return the best and the leanest schedule in an order of backward that needs less than autograd's."""
    graph = problem.graph
    order = backward_order(graph, problem.boundary, problem.companions, price)
    best, leanest = lazy_schedule(
        renumbered(graph, order), problem.boundary, budget, time_limit=time_limit, threads=threads
    )
    named = [each and Schedule(nodes=tuple(order[number] for number in each.nodes)) for each in (best, leanest)]
    return named[0], named[1] or leanest


def _cheaper(problem: JointProblem, best: Schedule | None, other: Schedule, budget: int) -> Schedule | None:
    """The cheaper of two, as the second will run."""
    other = problem.settled(other)
    figures = figures_of(problem.graph, other)
    if figures.peak_bytes > budget or (best and figures_of(problem.graph, best).cost <= figures.cost):
        return best
    return other


def _answer(problem: JointProblem, best: Schedule | None, leanest: Schedule, bound: float) -> ScheduleResult:
    schedule = problem.settled(best or leanest)
    figures = figures_of(problem.graph, schedule)
    if best and figures.cost <= bound * (1 + EQUAL):
        return OptimalSchedule(schedule=schedule, figures=figures)
    known = None if bound == INFINITY else min(bound, figures.cost)
    found = FeasibleSchedule(
        schedule=schedule, figures=figures, bound_cost=known, bound_for=EVERY_SCHEDULE if known is not None else ""
    )
    return found if best else NoSchedule(best=found)
