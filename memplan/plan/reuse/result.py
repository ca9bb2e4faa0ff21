"""Turn a solver's last placement and bound into its result."""

from memplan.plan.reuse.bound import HeightBound
from memplan.plan.reuse.records import (
    ArenaPlacement,
    FeasiblePlacement,
    InfeasiblePlacement,
    OptimalPlacement,
    PlacementTimedOut,
    Problem,
    Result,
)


def ended(problem: Problem, best: ArenaPlacement | None, bound: HeightBound, *, method: str) -> Result:
    """Return the result of a search that ended with a placement and a bound."""
    capacity = problem.capacity
    if capacity is not None and bound.bytes > capacity:
        return InfeasiblePlacement(reason=bound.reason, bound=bound.bytes, best=best)
    if best is None or (capacity is not None and best.height > capacity):
        return PlacementTimedOut(best=best, bound=bound.bytes)
    if best.height <= bound.bytes:
        return OptimalPlacement(placement=best, method=method)
    return FeasiblePlacement(placement=best, method=method, bound=bound.bytes)


def best_of(result: Result) -> ArenaPlacement | None:
    """The lowest placement that a result knows of."""
    match result:
        case OptimalPlacement() | FeasiblePlacement():
            return result.placement
        case InfeasiblePlacement() | PlacementTimedOut():
            return result.best


def bound_of(result: Result) -> int:
    """Below which no placement is."""
    return result.placement.height if isinstance(result, OptimalPlacement) else result.bound
