"""The request to the planner of blocks, beside the job and its device."""

from dataclasses import dataclass
from typing import Literal

from memplan.errors import UsageError
from memplan.hardware.profile import GpuProfile
from memplan.job.spec import JobSpec

DEFAULT_TIME_LIMIT = 30.0
"""Seconds for each call of a solver."""

Method = Literal["ilp", "dp", "rotor", "sqrt", "greedy"]
"""Solvers by name (``memplan.plan.checkpoint.blocks.solve.<name>.solve``)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BlockPlanRequest:
    """Budget, blocks to plan and how to search."""

    budget_bytes: int | None = None
    """Device peak at most; None takes what the device has (``GpuProfile.usable_bytes``)."""
    method: Method = "ilp"
    """Solver."""
    time_limit: float = DEFAULT_TIME_LIMIT
    """Seconds for each call of the solver."""
    offload: bool = False
    """May activations wait in host memory?"""
    blocks: tuple[str, ...] = ()
    """Qualified names or patterns of the modules to plan; empty: every repeated block, as ``--checkpoint full`` finds
    them."""
    pareto: bool = True
    """Also draw the memory-time curve."""

    def budget(self, profile: GpuProfile) -> int:
        """Return the device peak that a plan may have."""
        return self.budget_bytes if self.budget_bytes is not None else profile.usable_bytes


def check_request(spec: JobSpec, profile: GpuProfile, request: BlockPlanRequest) -> None:
    """Refuse what cannot be planned.

    Raises:
        UsageError: The job, the device and the request do not go together.
    """
    if spec.mode != "train":
        raise UsageError("only training keeps activations for a backward", where="--mode")
    if spec.checkpoint != "none":
        raise UsageError("the job already has a plan", where="--checkpoint", hint="leave --checkpoint away")
    if spec.compile != "eager":
        raise UsageError("block plans are for eager models", where="--compile")
    if request.offload and not profile.host_link_bandwidth:
        raise UsageError(f"{profile.name} has no link to a host to offload to", where="--offload")
    if request.budget_bytes is None and not profile.usable_bytes:
        raise UsageError(f"{profile.name} has no fixed amount of memory", where="--budget", hint="give --budget")
