"""Plan the checkpoints of a job's blocks in a child process: the library call."""

from collections.abc import Callable, Sequence

from memplan.hardware.profile import GpuProfile
from memplan.job.isolate import run_isolated
from memplan.job.spec import JobSpec
from memplan.plan.checkpoint.blocks.answer.records import CheckpointAnswer
from memplan.plan.checkpoint.blocks.request import DEFAULT_TIME_LIMIT, BlockPlanRequest, Method

DEFAULT_TIMEOUT = 900.0
"""Seconds until a job that hangs is given up: a plan takes several traces."""


def plan_checkpoints(
    spec: JobSpec,
    profile: GpuProfile,
    budget: int | None = None,
    *,
    method: Method = "ilp",
    time_limit: float = DEFAULT_TIME_LIMIT,
    offload: bool = False,
    blocks: Sequence[str] = (),
    timeout: float = DEFAULT_TIMEOUT,
    progress: Callable[[str], None] | None = None,
) -> CheckpointAnswer:
    """Find the cheapest plan whose traced device peak meets a budget. User code runs in a child process of its own.

    Args:
        spec: The job, of mode ``train``; its own ``checkpoint`` must be ``none``.
        profile: The device.
        budget: Device peak in bytes at most, as ``estimate`` reports it; None takes the device's usable bytes.
        method: Solver.
        time_limit: Seconds for each call of the solver.
        offload: May activations wait in host memory?
        blocks: Qualified names of the modules to plan; empty: every repeated block.
        timeout: Seconds after which the child is killed.
        progress: Told in a few words what happens now.

    Returns:
        The answer; ``outcome`` says how it ended. An infeasible budget is an answer, not an error.

    Raises:
        UsageError: The target, an option or the budget is wrong, or there are no blocks.
        EstimateError: User code fails or hangs, or an op has no trustworthy answer.
    """
    options = BlockPlanRequest(
        budget_bytes=budget,
        method=method,
        time_limit=time_limit,
        offload=offload,
        blocks=tuple(blocks),
    )
    return run_isolated(_in_child, spec, profile, options, timeout=timeout, progress=progress)


def _in_child(spec: JobSpec, profile: GpuProfile, options: BlockPlanRequest) -> CheckpointAnswer:
    from memplan.job.child import progress
    from memplan.plan.checkpoint.blocks.planning import plan_here

    return plan_here(spec, profile, options, progress=progress)
