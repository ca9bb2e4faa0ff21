"""The inputs of an answer."""

from dataclasses import dataclass

from memplan.hardware.profile import GpuProfile
from memplan.job.spec import JobSpec
from memplan.lifetime.roofline import Roofline
from memplan.plan.checkpoint.blocks.answer.records import ParetoPoint
from memplan.plan.checkpoint.blocks.problem.records import BlockProblem
from memplan.plan.checkpoint.blocks.prove.records import Proof, TracedPlan
from memplan.plan.checkpoint.blocks.request import Method
from memplan.runtime.checkpoint.records import Fingerprint
from memplan.tracing.records import ModelPlace


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
