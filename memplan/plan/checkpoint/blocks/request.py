"""What a user asks of the planner of blocks, beside the job and its device."""

from dataclasses import dataclass

from memplan.plan.checkpoint.blocks.answer.records import Method

DEFAULT_TIME_LIMIT = 30.0
"""Seconds for each call of a solver."""


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
