"""Plan the checkpoints of a job's blocks in a child process: the library call."""

from collections.abc import Callable

from memplan.hardware.profile import GpuProfile
from memplan.job.isolate import run_isolated
from memplan.job.spec import JobSpec
from memplan.plan.checkpoint.blocks.answer.records import CheckpointAnswer
from memplan.plan.checkpoint.blocks.request import BlockPlanRequest

DEFAULT_TIMEOUT = 900.0
"""Seconds until a job that hangs is given up: a plan takes several traces."""


def plan_checkpoints(
    spec: JobSpec,
    profile: GpuProfile,
    request: BlockPlanRequest,
    *,
    timeout: float = DEFAULT_TIMEOUT,
    progress: Callable[[str], None] | None = None,
) -> CheckpointAnswer:
    """Find the cheapest plan whose traced device peak meets a budget. User code runs in a child process of its own.

    The job is of mode ``train``, and its own ``checkpoint`` must be ``none``. ``timeout`` is seconds after which the
    child is killed; ``progress`` is told in a few words what happens now.

    Returns:
        The answer; ``outcome`` says how it ended. An infeasible budget is an answer, not an error.

    Raises:
        UsageError: The target, an option or the budget is wrong, or there are no blocks.
        EstimateError: User code fails or hangs, or an op has no trustworthy answer.
    """
    return run_isolated(_in_child, spec, profile, request, timeout=timeout, progress=progress)


def _in_child(spec: JobSpec, profile: GpuProfile, request: BlockPlanRequest) -> CheckpointAnswer:
    from memplan.job.child import progress
    from memplan.plan.checkpoint.blocks.planning import plan_here

    return plan_here(spec, profile, request, progress=progress)
