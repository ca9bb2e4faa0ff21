"""How a solver's last placement and bound become its result."""

from memplan.plan.reuse.bound import Bound
from memplan.plan.reuse.records import Feasible, Infeasible, Optimal, Placement, Problem, Result, TimedOut


def ended(problem: Problem, best: Placement | None, bound: Bound, *, method: str) -> Result:
    """What a placement and a bound come to.

    Args:
        problem: What was to be placed.
        best: The lowest placement found, if any.
        bound: Below which nothing is, and why.
        method: Who found the placement.
    """
    capacity = problem.capacity
    if capacity is not None and bound.bytes > capacity:
        return Infeasible(reason=bound.reason, bound=bound.bytes, best=best)
    if best is None or (capacity is not None and best.height > capacity):
        return TimedOut(best=best, bound=bound.bytes)
    if best.height <= bound.bytes:
        return Optimal(placement=best, method=method)
    return Feasible(placement=best, method=method, bound=bound.bytes)


def best_of(result: Result) -> Placement | None:
    """The lowest placement that a result knows of."""
    match result:
        case Optimal() | Feasible():
            return result.placement
        case Infeasible() | TimedOut():
            return result.best


def bound_of(result: Result) -> int:
    """Below which no placement is."""
    return result.placement.height if isinstance(result, Optimal) else result.bound
