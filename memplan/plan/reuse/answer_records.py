"""The answer of ``memplan reuse-plan``: an arena, and what it is to be compared with."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from memplan.plan.reuse.records import (
    ArenaPlacement,
    FeasiblePlacement,
    InfeasiblePlacement,
    OptimalPlacement,
    PlacementTimedOut,
    Problem,
    Result,
)
from memplan.plan.reuse.result import best_of, bound_of
from memplan.units import Bytes

Outcome = Literal["optimal", "feasible", "infeasible", "timed_out"]
"""How it ended."""
SourceKind = Literal["file", "snapshot", "step"]
"""Where the buffers come from."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StepContext:
    """What a step or a real history says beside its buffers; files of buffers say nothing."""

    device: str
    """Profile that the step was traced for, or the snapshot's device."""
    labels: tuple[str, ...]
    """Per buffer: category of what it holds (``activation``), or the first own frame that asked for it."""
    owners: tuple[str, ...]
    """Per buffer: module and op, or source line."""
    repetitions: int
    """How many steps in a row are planned."""
    persistent_bytes: Bytes
    """Alive all through, beside the arena: parameters, optimizer state."""
    outside_bytes: Bytes
    """Most bytes alive at once on other CUDA streams, beside the arena."""
    reserved_bytes: Bytes
    """Reserved peak of PyTorch's caching allocator, for the same allocations."""
    step: str
    """The step in words; empty for a snapshot."""
    options: Mapping[str, str]
    """Every option that is not at its default."""
    assumptions: tuple[str, ...]
    """Decisions that change the answer."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Gathered:
    """A problem, and what is known beside it."""

    problem: Problem
    """The buffers."""
    surroundings: StepContext | None
    """None for files of buffers."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MethodOutcome:
    """How one method did."""

    name: str
    """As typed after ``--method``."""
    result: Result | None
    """How its search ended; None where it could not take the problem."""
    refusal: str
    """Why it could not; empty otherwise."""
    note: str
    """What is to be said beside heights; empty: nothing."""
    seconds: float
    """Wall clock time."""

    @property
    def outcome(self) -> Outcome | None:
        """How its search ended."""
        return None if self.result is None else outcome_of(self.result)

    @property
    def height_bytes(self) -> Bytes | None:
        """End of its lowest placement's highest buffer, even over the capacity."""
        found = None if self.result is None else best_of(self.result)
        return None if found is None else found.height

    @property
    def bound_bytes(self) -> Bytes | None:
        """No placement is lower than this, as far as it knows."""
        return None if self.result is None else Bytes(bound_of(self.result))


@dataclass(frozen=True, slots=True, kw_only=True)
class ReuseAnswer:
    """What was placed, and how good that is."""

    target: str
    """As typed."""
    kind: SourceKind
    """Where the buffers come from."""
    problem: Problem
    """The buffers."""
    result: Result
    """How the search ended."""
    surroundings: StepContext | None
    """None for files of buffers."""
    read_seconds: float
    """Reading or tracing."""
    solve_seconds: float
    """In solvers."""
    memplan_version: str
    methods: tuple[MethodOutcome, ...] = ()
    """A row for each method that ran."""

    @property
    def outcome(self) -> Outcome:
        """How the search ended."""
        return outcome_of(self.result)

    @property
    def fits(self) -> bool:
        """Is there a placement, within the capacity if there is one?"""
        return isinstance(self.result, OptimalPlacement | FeasiblePlacement)

    @property
    def placement(self) -> ArenaPlacement | None:
        """The best placement known, even if it is over the capacity."""
        return best_of(self.result)

    @property
    def method(self) -> str:
        """Who found the placement; empty where nobody found one that fits."""
        return self.result.method if isinstance(self.result, OptimalPlacement | FeasiblePlacement) else ""

    @property
    def reason(self) -> str:
        """Why nothing fits; empty where something does or may."""
        return self.result.reason if isinstance(self.result, InfeasiblePlacement) else ""

    @property
    def bound_bytes(self) -> Bytes:
        """No placement is lower than this."""
        return Bytes(bound_of(self.result))

    @property
    def total_bytes(self) -> Bytes:
        """All buffers of one step side by side: the memory without any reuse."""
        steps = self.surroundings.repetitions if self.surroundings else 1
        return Bytes(sum(buffer.size for buffer in self.problem.buffers) // steps)


def outcome_of(result: Result) -> Outcome:
    """How a search ended, in a word."""
    match result:
        case OptimalPlacement():
            return "optimal"
        case FeasiblePlacement():
            return "feasible"
        case InfeasiblePlacement():
            return "infeasible"
        case PlacementTimedOut():
            return "timed_out"
