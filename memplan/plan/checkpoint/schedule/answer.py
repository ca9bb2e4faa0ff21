"""The answer for a graph: a schedule within a budget, and how far it is from the best."""

from dataclasses import dataclass
from typing import Literal

from memplan.errors import MemplanError, UsageError
from memplan.plan.checkpoint.schedule.check import violations
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
from memplan.versions import installed


@dataclass(frozen=True, slots=True, kw_only=True)
class GraphAnswer:
    """What was found for one graph and budget."""

    target: str
    """The target as typed."""
    nodes: int
    edges: int
    outcome: Literal["optimal", "feasible", "infeasible", "timed_out"]
    """How the search ended."""
    budget_bytes: Bytes
    """Peak asked for at most."""
    peak_before_bytes: Bytes
    """Peak of the graph's own order, nothing computed twice."""
    peak_after_bytes: Bytes | None
    """Peak of the schedule; None where there is none."""
    overhead_ratio: float | None
    """Extra cost as a share of computing every node once."""
    gap: float | None
    """How far the cost may be above the least, as a share of computing every node once; None: no bound is known."""
    bound_for: str
    """What the bound holds for; empty without one."""
    least_feasible_bytes: Bytes | None
    """What one node alone takes, where that is over the budget."""
    binding: str
    """The node at which the schedule's peak is reached, or which does not fit."""
    schedule: tuple[str, ...]
    """Names of the nodes in order of computation; empty where nothing was found."""
    solve_seconds: float
    """Wall time of the search."""
    memplan_version: str
    fixed_bytes: Bytes | None = None
    """Of the peaks, what is there throughout: parameters, buffers, batch; None for a file, whose nodes are all."""
    trace_seconds: float = 0.0
    """Wall time until a target's graph was there; a file's takes none."""
    torch_version: str = ""
    """What captured a target's graph; empty for a file."""
    assumptions: tuple[str, ...] = ()
    """What was taken for granted, in full sentences."""

    @property
    def again(self) -> int:
        """The number of computations beyond one of each node."""
        return max(0, len(self.schedule) - self.nodes)


def budget_of(before: ScheduleFigures, budget: int | None, ratio: float | None) -> Bytes:
    """The budget in bytes: given, or a share of the peak of the graph's own order, rounded down.

    Raises:
        UsageError: Not exactly one of them is given.
    """
    if (budget is None) == (ratio is None):
        raise UsageError("a graph needs a budget", where="--budget", hint="give --budget or --budget-ratio, not both")
    return Bytes(budget if budget is not None else int((ratio or 0.0) * before.peak_bytes))


def answer_of(
    graph: RematGraph, before: ScheduleFigures, result: ScheduleResult, *, target: str, budget: Bytes, seconds: float
) -> GraphAnswer:
    """Return the answer of a search.

    Raises:
        MemplanError: The schedule is wrong, by a check of its own.
    """
    schedule, figures = _found(result)
    if isinstance(result, OptimalSchedule | FeasibleSchedule) and (
        wrong := violations(
            graph, result.schedule, budget, cost=result.figures.cost, peak_bytes=result.figures.peak_bytes
        )
    ):
        raise MemplanError(f"a schedule is wrong, please report it: {wrong[0].detail}")
    bound = _bound(result)
    node = result.node if isinstance(result, InfeasibleSchedule) else None
    if schedule is not None and figures is not None:
        node = schedule.nodes[figures.peak_at]
    return GraphAnswer(
        target=target,
        nodes=len(graph.names),
        edges=sum(map(len, graph.predecessors)),
        outcome=_outcome(result),
        budget_bytes=budget,
        peak_before_bytes=before.peak_bytes,
        peak_after_bytes=None if figures is None else figures.peak_bytes,
        overhead_ratio=None if figures is None else figures.cost / before.cost - 1,
        gap=None if figures is None or bound is None else max(0.0, figures.cost - bound) / before.cost,
        bound_for=result.bound_for if isinstance(result, FeasibleSchedule) else "every schedule" if bound else "",
        least_feasible_bytes=result.least_bytes if isinstance(result, InfeasibleSchedule) else None,
        binding="" if node is None else graph.names[node],
        schedule=() if schedule is None else tuple(graph.names[node] for node in schedule.nodes),
        solve_seconds=seconds,
        memplan_version=installed("memplan"),
    )


def _found(result: ScheduleResult) -> tuple[Schedule | None, ScheduleFigures | None]:
    match result:
        case OptimalSchedule() | FeasibleSchedule():
            return result.schedule, result.figures
        case NoSchedule(best=FeasibleSchedule() as best):
            return best.schedule, best.figures
        case _:
            return None, None


def _bound(result: ScheduleResult) -> float | None:
    if isinstance(result, OptimalSchedule):
        return result.figures.cost
    return result.bound_cost if isinstance(result, FeasibleSchedule) else None


def _outcome(result: ScheduleResult) -> Literal["optimal", "feasible", "infeasible", "timed_out"]:
    match result:
        case OptimalSchedule():
            return "optimal"
        case FeasibleSchedule():
            return "feasible"
        case InfeasibleSchedule():
            return "infeasible"
        case NoSchedule():
            return "timed_out"
