"""Records of a search for a plan: traced steps, the best of them, and the bound on all others."""

from collections.abc import Callable
from dataclasses import dataclass, replace

from memplan.plan.checkpoint.blocks.probe.traffic import Probe
from memplan.plan.checkpoint.blocks.problem.records import (
    BlockChoice,
    BlockProblem,
    ChoiceResult,
    ChoiceTimedOut,
    FeasibleChoice,
    InfeasibleChoice,
    OptimalChoice,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class TracedPlan:
    """A step that was traced with a choice in force."""

    choice: BlockChoice
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
        """The bytes that the device holds beyond the most bytes alive in the last step."""
        return self.device_bytes - max(self.live)


@dataclass(frozen=True, slots=True, kw_only=True)
class Proof:
    """The result of a search: the best traced plan, and the bound on all others."""

    result: ChoiceResult
    """The solver's last word in the search."""
    problem: BlockProblem
    """The problem as it stood then."""
    traced: TracedPlan
    """The best plan that meets the budget; if none does, the one of the least peak."""
    found: tuple[TracedPlan, ...]
    """Every step that was traced, the unplanned one first."""
    limit: ChoiceResult
    """What the solver says where allocators lose nothing: of the choices that it weighs, none that fits the device is
    cheaper."""
    solve_seconds: float
    """Wall time in the solver."""

    @property
    def rounds(self) -> int:
        """Plans traced."""
        return len(self.found) - 1

    def with_traced(self, choice: BlockChoice, trace: Callable[[BlockChoice], TracedPlan]) -> "Proof":
        """The same search, and one more choice traced; it is the plan if it is quicker and no larger."""
        if any(each.choice == choice for each in self.found):
            return self
        more, plan = trace(choice), self.traced
        is_better = more.seconds < plan.seconds and more.device_bytes <= plan.device_bytes
        return replace(self, found=(*self.found, more), traced=more if is_better else plan)

    @property
    def bound_seconds(self) -> float | None:
        """The least cost of any plan that fits, by the sum of its options; None where the solver proved nothing."""
        return bound_of(self.limit)


def chosen(result: ChoiceResult) -> BlockChoice | None:
    """Return the choice that a solver proposes; of an infeasible problem, the one that comes nearest."""
    match result:
        case OptimalChoice() | FeasibleChoice() | InfeasibleChoice():
            return result.choice
        case ChoiceTimedOut():
            return result.best


def bound_of(result: ChoiceResult) -> float | None:
    """The extra seconds that a solver proved no choice to be below; None where it proved nothing."""
    match result:
        case OptimalChoice():
            return result.seconds
        case FeasibleChoice():
            return result.bound_seconds
        case InfeasibleChoice() | ChoiceTimedOut():
            return None
