"""What a search for a plan found: traced steps, the best of them, and what none can beat."""

from collections.abc import Callable
from dataclasses import dataclass, replace

from memplan.plan.checkpoint.blocks.probe.traffic import Probe
from memplan.plan.checkpoint.blocks.problem import BlockProblem, Choice, Feasible, Infeasible, Optimal, Result, TimedOut


@dataclass(frozen=True, slots=True, kw_only=True)
class Traced:
    """A choice with its plan in force."""

    choice: Choice
    """The choice."""
    probe: Probe
    """The traced step."""
    live: tuple[int, ...]
    """The most bytes alive at each position of the problem, those on their way to the host and back included."""
    device_bytes: int
    """Device peak, as ``estimate`` reports it."""
    seconds: float
    """Roofline time of the step."""
    flops: int
    """FLOPs of the step."""

    @property
    def lost_bytes(self) -> int:
        """What the device holds beyond the most bytes alive in the last step."""
        return self.device_bytes - max(self.live)


@dataclass(frozen=True, slots=True, kw_only=True)
class Proof:
    """What came of the search."""

    result: Result
    """The solver's last word in the search."""
    problem: BlockProblem
    """The problem as it stood then."""
    traced: Traced
    """The best plan that meets the budget; if none does, the one of the least peak."""
    found: tuple[Traced, ...]
    """Every step that was traced, the unplanned one first."""
    limit: Result
    """What the solver says where allocators lose nothing: of the choices that it weighs, none that fits the device is
    cheaper."""
    solve_seconds: float
    """Wall time in the solver."""

    @property
    def rounds(self) -> int:
        """Plans traced."""
        return len(self.found) - 1

    def with_traced(self, choice: Choice, trace: Callable[[Choice], Traced]) -> "Proof":
        """The same search, and one more choice traced; it is the plan if it is quicker and no larger."""
        if any(each.choice == choice for each in self.found):
            return self
        more, plan = trace(choice), self.traced
        is_better = more.seconds < plan.seconds and more.device_bytes <= plan.device_bytes
        return replace(self, found=(*self.found, more), traced=more if is_better else plan)

    @property
    def bound_seconds(self) -> float | None:
        """What any plan that fits costs at least, by the sum of its options; None where the solver proved nothing."""
        return bound_of(self.limit)


def chosen(result: Result) -> Choice | None:
    """What a solver proposes; of an infeasible problem, what comes nearest."""
    match result:
        case Optimal() | Feasible() | Infeasible():
            return result.choice
        case TimedOut():
            return result.best


def bound_of(result: Result) -> float | None:
    """The extra seconds that a solver proved no choice to be below; None where it proved nothing."""
    match result:
        case Optimal():
            return result.seconds
        case Feasible():
            return result.bound_seconds
        case Infeasible() | TimedOut():
            return None
