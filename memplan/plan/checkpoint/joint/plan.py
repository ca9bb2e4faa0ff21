"""A budget to a schedule of a joint graph, and to the partitioner that puts it into force."""

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from memplan.errors import EstimateError
from memplan.lifetime.roofline import UNKNOWN_BANDWIDTH, UNKNOWN_FLOPS, Roofline
from memplan.plan.checkpoint.graph.figures import figures_of, unplanned
from memplan.plan.checkpoint.graph.records import (
    FeasibleSchedule,
    InfeasibleSchedule,
    NoSchedule,
    OptimalSchedule,
    Schedule,
    ScheduleFigures,
    ScheduleResult,
)
from memplan.plan.checkpoint.graph.solve import solve_schedule
from memplan.plan.checkpoint.joint.backward import backward_order, renumbered
from memplan.plan.checkpoint.joint.bound import least_again
from memplan.plan.checkpoint.joint.capture import JointGraph
from memplan.plan.checkpoint.joint.cost import Cost, roofline_seconds
from memplan.plan.checkpoint.joint.lazy import lazy_schedule
from memplan.plan.checkpoint.joint.problem import JointProblem, problem_of
from memplan.units import format_bytes

if TYPE_CHECKING:
    from torch.fx import GraphModule

    from memplan.runtime.partition.partitioner import PlannedPartitioner
    from memplan.runtime.partition.split import Order

INFINITY = float("inf")
EVERY_SCHEDULE = "every schedule that computes gradients once"
"""What the bound holds for."""
LAZY_SHARE, BOUND_SHARE = 0.6, 0.2
"""Of the time; what is left goes to annealing and to the program of the whole graph, where that is small enough."""
MOST_NODES = 1200
"""Of a graph that these improve."""
EQUAL = 1e-6
"""Costs that differ by less, relatively, are the same."""
ASSUMED_RATES = Roofline(flops=UNKNOWN_FLOPS, bandwidth=UNKNOWN_BANDWIDTH, assumed=True)
"""Where no device is named."""


@dataclass(frozen=True, slots=True, kw_only=True)
class JointPlan:
    """What was planned for one joint graph."""

    problem: JointProblem
    """The problem."""
    result: ScheduleResult
    """How planning ended."""
    unplanned: ScheduleFigures
    """Without a plan."""


def plan_joint(problem: JointProblem, budget: int, *, time_limit: float = 30.0, threads: int = 2) -> ScheduleResult:
    """Look for the cheapest schedule of a joint graph within a budget.

    Args:
        problem: The joint graph's problem.
        budget: Bytes alive at once: parameters, arguments, activations and gradients.
        time_limit: Seconds.
        threads: Of the solvers.

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
    """What is found in an order of backward that needs less than autograd's."""
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


def budget_partitioner(
    budget_bytes: int,
    *,
    cost: Cost | None = None,
    time_limit: float = 30.0,
    threads: int = 2,
    tell: Callable[[JointPlan], None] | None = None,
) -> "PlannedPartitioner":
    """A partitioner that keeps every graph that it is given within a budget.

    Args:
        budget_bytes: Bytes alive at once while one graph's forward and backward run: its parameters and arguments, its
            activations and gradients.
        cost: What running an op costs; None: roofline seconds of a nondescript device.
        time_limit: Seconds of planning for each graph.
        threads: Of the solvers.
        tell: Takes each plan, before it is used.

    Returns:
        For ``torch._inductor.config.custom_partitioner_fn`` or ``partition_fn`` of ``aot_function``, ``aot_module`` and
        ``torch._dynamo.backends.common.aot_autograd``. It raises ``EstimateError`` where it finds no schedule.
    """
    from memplan.runtime.partition.partitioner import PlannedPartitioner

    def order_of(module: "GraphModule", num_forward_outputs: int) -> "Order":
        joint = JointGraph(module=module, forward_outputs=num_forward_outputs)
        problem = problem_of(joint, cost or roofline_seconds(ASSUMED_RATES))
        result = plan_joint(problem, budget_bytes, time_limit=time_limit, threads=threads)
        figures = figures_of(problem.graph, unplanned(problem.graph))
        if tell:
            tell(JointPlan(problem=problem, result=result, unplanned=figures))
        return problem.order(schedule_of(result, problem, budget_bytes))

    return PlannedPartitioner(order_of)


def schedule_of(result: ScheduleResult, problem: JointProblem, budget: int) -> Schedule:
    """The schedule of a result that has one.

    Args:
        result: How planning ended.
        problem: What was planned.
        budget: Bytes that were allowed.

    Raises:
        EstimateError: It has none; the message says what would fit.
    """
    match result:
        case OptimalSchedule() | FeasibleSchedule():
            return result.schedule
        case InfeasibleSchedule():
            raise EstimateError(
                f"{format_bytes(budget)} is less than what one op needs: {problem.graph.names[result.node]}",
                hint=f"a budget of {format_bytes(result.least_bytes)} or more",
            )
        case NoSchedule():
            least = result.best.figures.peak_bytes if result.best else 0
            raise EstimateError(
                f"no schedule within {format_bytes(budget)} was found",
                hint=f"{format_bytes(least)} can be met",
            )
