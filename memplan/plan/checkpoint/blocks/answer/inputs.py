"""The inputs of an answer; how its search ended, and how far from the best its plan can be."""

from dataclasses import dataclass
from typing import assert_never

from memplan.hardware.profile import GpuProfile
from memplan.job.spec import JobSpec
from memplan.lifetime.roofline import Roofline
from memplan.plan.checkpoint.blocks.answer.records import Outcome, ParetoPoint
from memplan.plan.checkpoint.blocks.problem.copies import offloads
from memplan.plan.checkpoint.blocks.problem.records import (
    BlockProblem,
    ChoiceTimedOut,
    FeasibleChoice,
    InfeasibleChoice,
    OptimalChoice,
)
from memplan.plan.checkpoint.blocks.prove.records import Proof, TracedPlan
from memplan.plan.checkpoint.blocks.request import Method
from memplan.plan.checkpoint.blocks.solve.symmetry import is_nested
from memplan.runtime.checkpoint.records import Fingerprint
from memplan.tracing.records import ModelPlace

NO_GAP = 1e-5
"""Share of the step's time up to which a plan counts as being at its bound: the precision of solvers."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Certainty:
    """How a search ended, and how certain that is; the fields are those of ``CheckpointAnswer``."""

    outcome: Outcome
    gap: float | None
    is_proved: bool
    bound_for: str


@dataclass(frozen=True, slots=True, kw_only=True)
class AnswerInputs:
    """The job, the problem, its proof and the times that the answer is made of."""

    spec: JobSpec
    """The job."""
    profile: GpuProfile
    """The device."""
    budget: int
    """Device peak at most."""
    method: Method
    """Solver."""
    fingerprint: Fingerprint | None
    """Of the model."""
    model_place: ModelPlace | None
    """Where a program has it."""
    roofline: Roofline
    """Rates of the device."""
    problem: BlockProblem
    """The problem before corrections."""
    proof: Proof
    """What the search came to."""
    pareto: tuple[ParetoPoint, ...]
    """The memory-time curve; empty where it was not asked for."""
    dropped: tuple[str, ...]
    """Blocks that could not be planned."""
    notes: tuple[str, ...]
    """What could not be offered."""
    traces: int
    """All traces."""
    trace_seconds: float
    """Of measuring."""
    solve_seconds: float
    """In solvers."""
    prove_seconds: float
    """Of tracing plans again."""

    @property
    def unplanned(self) -> TracedPlan:
        """The step without a plan."""
        return self.proof.found[0]

    @property
    def fits(self) -> bool:
        """Does the traced plan meet the budget?"""
        return self.proof.traced.device_bytes <= self.budget


def certainty(planned: AnswerInputs, extra_seconds: float) -> Certainty:
    """Return how certain an answer is, given the extra time of its plan by the formula."""
    share = _gap(planned, extra_seconds)
    proved = _is_proved(planned, share)
    return Certainty(
        outcome=_outcome(planned, share),
        gap=share,
        is_proved=proved,
        bound_for=_bound_for(planned, share, is_proved=proved),
    )


def _outcome(planned: AnswerInputs, share: float | None) -> Outcome:
    """Return how the search ended, the proof included."""
    if planned.fits:
        return "optimal" if share == 0.0 else "feasible"
    match planned.proof.result:
        case ChoiceTimedOut():
            return "timed_out"
        case InfeasibleChoice() | OptimalChoice() | FeasibleChoice():
            return "infeasible"
        case never:
            assert_never(never)


def _gap(planned: AnswerInputs, extra_seconds: float) -> float | None:
    """Return the plan's extra time above the bound on every plan that fits, as a share of the step's time."""
    proof, before = planned.proof, planned.unplanned
    if not planned.fits or proof.bound_seconds is None:
        return None
    if proof.traced.choice.segments and not _weighs_segments(planned):
        return None
    # The bound adds up what options were measured to cost; where a trace says otherwise, the higher figure counts.
    extra = max(proof.traced.seconds - before.seconds, extra_seconds)
    share = (extra - proof.bound_seconds) / (before.seconds or 1.0)
    return share if share > NO_GAP else 0.0


def _weighs_segments(planned: AnswerInputs) -> bool:
    """Does the solver's word hold for nested segments, too, or can there be none?"""
    problem = planned.problem
    weighs = planned.method in {"ilp", "rotor"} and not offloads(problem)
    return weighs or not (problem.chain and is_nested(problem))


def _is_proved(planned: AnswerInputs, share: float | None) -> bool:
    """Is there certainly nothing better, or nothing at all that fits?"""
    if planned.fits:
        return share == 0.0
    limit = planned.proof.limit
    return _is_hopeless(planned) or (isinstance(limit, InfeasibleChoice) and limit.is_proved)


def _is_hopeless(planned: AnswerInputs) -> bool:
    """Is what no plan can change already too much?"""
    most_live = planned.budget - planned.profile.context_bytes
    return max(position.fixed_bytes for position in planned.problem.positions) > most_live


def _bound_for(planned: AnswerInputs, share: float | None, *, is_proved: bool) -> str:
    """Return which plans gap and proof hold for, in words; empty where neither says anything."""
    if not is_proved and share is None:
        return ""
    is_sure = _weighs_segments(planned) or _is_hopeless(planned) or planned.proof.bound_seconds == 0.0
    return "plan of these options" if is_sure else "plan without nested segments"
