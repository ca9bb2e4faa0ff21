"""A partitioner that plans each joint graph when it is compiled."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from memplan.errors import EstimateError
from memplan.plan.checkpoint.ops.capture.capture import JointGraph
from memplan.plan.checkpoint.ops.capture.cost import ASSUMED_RATES, Cost, roofline_seconds
from memplan.plan.checkpoint.ops.capture.problem import JointProblem, problem_of
from memplan.plan.checkpoint.ops.solve.plan import plan_joint
from memplan.plan.checkpoint.schedule.figures import figures_of, unplanned
from memplan.plan.checkpoint.schedule.records import (
    FeasibleSchedule,
    InfeasibleSchedule,
    NoSchedule,
    OptimalSchedule,
    Schedule,
    ScheduleFigures,
    ScheduleResult,
)
from memplan.units import format_bytes

if TYPE_CHECKING:
    from torch.fx import GraphModule

    from memplan.runtime.partition.partitioner import PlannedPartitioner
    from memplan.runtime.partition.split import Order


@dataclass(frozen=True, slots=True, kw_only=True)
class JointPlan:
    """The plan of one joint graph."""

    problem: JointProblem
    """The problem."""
    result: ScheduleResult
    """How planning ended."""
    unplanned: ScheduleFigures
    """Without a plan."""


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
