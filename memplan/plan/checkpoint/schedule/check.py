"""Is a schedule what it claims to be? Shares no code with the solvers, nor with ``figures.py``.

The schedule is executed backwards: a value is needed at a position if a later computation reads it before it is
computed again, so one sweep from the end knows what has to be in memory at each position.
"""

from dataclasses import dataclass
from enum import StrEnum

from memplan.plan.checkpoint.schedule.records import RematGraph, Schedule


class ViolationKind(StrEnum):
    """The kinds of errors that a schedule can have."""

    UNKNOWN_NODE = "unknown node"
    MISSING_NODE = "node never computed"
    MISSING_INPUT = "input not computed before"
    PINNED_AGAIN = "pinned node computed again"
    OVER_BUDGET = "over budget"
    WRONG_COST = "cost is not as claimed"
    WRONG_PEAK = "peak is not as claimed"


@dataclass(frozen=True, slots=True, kw_only=True)
class ScheduleViolation:
    """One thing that is wrong."""

    reason: ViolationKind
    """Its kind."""
    position: int | None
    """Position in the schedule; None where it is about the whole."""
    node: int | None
    """The node concerned."""
    detail: str
    """For people, with the figures."""


def violations(
    graph: RematGraph,
    schedule: Schedule,
    budget: int | None = None,
    *,
    cost: float | None = None,
    peak_bytes: int | None = None,
) -> tuple[ScheduleViolation, ...]:
    """Look for everything that is wrong with a schedule.

    Args:
        graph: The problem.
        schedule: What is claimed to solve it.
        budget: Most bytes that may be alive at once; None: any.
        cost: The claimed cost, compared to within one part in 10**9; None: not claimed.
        peak_bytes: The claimed peak; None: not claimed.

    Returns:
        Every violation found; empty if it is in order. Memory is looked at only if all nodes and inputs are in order.
    """
    found = _structure(graph, schedule)
    if found:
        return tuple(found)
    needed = _needed_bytes(graph, schedule)
    if budget is not None:
        found += [
            ScheduleViolation(
                reason=ViolationKind.OVER_BUDGET,
                position=position,
                node=schedule.nodes[position],
                detail=f"{nbytes} bytes are alive, {nbytes - budget} over the budget",
            )
            for position, nbytes in enumerate(needed)
            if nbytes > budget
        ]
    return tuple(found + _claims(graph, schedule, needed, cost, peak_bytes))


def _structure(graph: RematGraph, schedule: Schedule) -> list[ScheduleViolation]:
    found: list[ScheduleViolation] = []
    done: set[int] = set()
    for position, node in enumerate(schedule.nodes):
        if not 0 <= node < len(graph.names):
            detail = f"there is no node {node}"
            found.append(
                ScheduleViolation(reason=ViolationKind.UNKNOWN_NODE, position=position, node=node, detail=detail)
            )
            continue
        absent = [source for source in graph.predecessors[node] if source not in done]
        if absent:
            detail = f"{graph.names[node]} reads {', '.join(graph.names[source] for source in absent)}"
            found.append(
                ScheduleViolation(reason=ViolationKind.MISSING_INPUT, position=position, node=node, detail=detail)
            )
        if node in done and node in graph.pinned:
            detail = f"{graph.names[node]} must run exactly once"
            found.append(
                ScheduleViolation(reason=ViolationKind.PINNED_AGAIN, position=position, node=node, detail=detail)
            )
        done.add(node)
    for node in sorted(set(range(len(graph.names))) - done):
        detail = f"{graph.names[node]} is missing"
        found.append(ScheduleViolation(reason=ViolationKind.MISSING_NODE, position=None, node=node, detail=detail))
    return found


def _needed_bytes(graph: RematGraph, schedule: Schedule) -> list[int]:
    wanted = set(graph.outputs)
    result: list[int] = []
    for node in reversed(schedule.nodes):
        reads = set(graph.predecessors[node])
        alive = wanted | reads | {node}
        scratch = graph.scratch[node] if graph.scratch else 0
        result.append(graph.fixed_bytes + sum(graph.sizes[value] for value in alive) + scratch)
        # Before this position its own value need not be there: an earlier one has had its last use.
        wanted = (wanted - {node}) | reads
    return result[::-1]


def _claims(
    graph: RematGraph, schedule: Schedule, needed: list[int], cost: float | None, peak_bytes: int | None
) -> list[ScheduleViolation]:
    found: list[ScheduleViolation] = []
    true_cost = sum(graph.costs[node] for node in schedule.nodes)
    if cost is not None and abs(cost - true_cost) > 1e-9 * max(1.0, true_cost):
        detail = f"it costs {true_cost}, not {cost}"
        found.append(ScheduleViolation(reason=ViolationKind.WRONG_COST, position=None, node=None, detail=detail))
    true_peak = max(needed, default=graph.fixed_bytes)
    if peak_bytes is not None and peak_bytes != true_peak:
        detail = f"it takes {true_peak} bytes, not {peak_bytes}"
        found.append(ScheduleViolation(reason=ViolationKind.WRONG_PEAK, position=None, node=None, detail=detail))
    return found
