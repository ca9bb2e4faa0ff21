"""The answer of ``plan_checkpoints``: what to keep and what to run again, at what price, and how well that is known."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from memplan.plan.checkpoint.blocks.problem.records import ChoiceResult
from memplan.runtime.checkpoint.records import Action, CheckpointPlan
from memplan.tracing.records import ModelPlace
from memplan.units import Bytes

Outcome = Literal["optimal", "feasible", "infeasible", "timed_out"]


@dataclass(frozen=True, slots=True, kw_only=True)
class BlockRow:
    """One block in the answer's table."""

    module: str
    """Qualified name."""
    kind: int
    """Blocks of one kind have the same structure and shapes."""
    action: Action
    """What it does under the plan."""
    saved: tuple[str, ...]
    """What it keeps if selective, in words: ``aten.mm.default x3``."""
    kept_bytes: Bytes
    """Its own activations between its forward and its backward, under the plan."""
    kept_before_bytes: Bytes
    """The same without the plan."""
    offloaded_bytes: Bytes
    """What waits on the host."""
    seconds: float
    """Extra time per step, by roofline."""
    segment: int | None
    """Index of the innermost segment it is part of (``CheckpointPlan.segments``); None outside segments."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ParetoPoint:
    """One point of the memory-time curve: a traced plan, or what the formula says beside the proved one."""

    peak_bytes: Bytes
    """Device peak."""
    overhead_ratio: float
    """Extra time as a share of the step."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckpointAnswer:
    """A budget, and what was found for it."""

    target: str
    """The target as typed."""
    device: str
    """Profile that it was made for."""
    device_title: str
    """The vendor's name for it."""
    step: str
    """The step in words: ``batch 8 x seq 2048 · bf16 · adamw``."""
    options: Mapping[str, str]
    """What the step was, as ``Estimate.options``."""
    outcome: Outcome
    """How the search ended, the proof included. ``optimal``: the traced plan fits, and no plan of ``bound_for`` costs
    less and fits, however little its allocator loses; ``feasible``: it fits, and ``gap`` says how far from that it may
    be; ``infeasible``: nothing that was traced fits; ``timed_out``: nor did the solver come to an end."""
    proved: bool
    """Is the outcome certain: is it ``optimal``; or ``infeasible``, and no plan of ``bound_for`` fits even where the
    allocator loses nothing?"""
    result: ChoiceResult
    """What the solver said last, about the problem as it stood after the corrections."""
    method: str
    """Solver that found it."""
    plan: CheckpointPlan
    """The plan, with fingerprint and promise; where ``infeasible``, the plan of the least peak known."""
    model_place: ModelPlace | None
    """Where a program has the model that the plan is for; None for a target."""
    budget_bytes: Bytes
    """Device peak asked for at most."""
    peak_before_bytes: Bytes
    """Device peak without the plan, as ``estimate`` reports it."""
    peak_after_bytes: Bytes
    """Device peak traced again with ``plan`` in force."""
    activation_before_bytes: Bytes
    """Of the live bytes at the unplanned peak, those that depend on the plan (what blocks keep and pass on)."""
    overhead_ratio: float
    """Extra time as a share of the step, by roofline, of the traced plan."""
    flops_ratio: float
    """Extra FLOPs as a share of the step."""
    gap: float | None
    """How far the extra time may be above that of the cheapest plan of ``bound_for`` that fits, however little its
    allocator loses, as a share of the step's time; None where no bound is known or nothing fits."""
    bound_for: str
    """Which plans ``gap`` and ``proved`` speak of, in words; empty where nothing is proved of any."""
    least_feasible_bytes: Bytes | None
    """Least device peak that any traced plan has; None where the least was not looked for (the curve was not asked for,
    and the plan fits)."""
    binding: str
    """Where the plan's peak is reached, in words: ``backward of layers.3``."""
    blocks: tuple[BlockRow, ...]
    """Every block in order, those that keep everything included."""
    pareto: tuple[ParetoPoint, ...]
    """The memory-time curve, least memory first: rising peaks, falling times, the proved plan among them; empty where
    it was not asked for."""
    rounds: int
    """Times that a plan was traced again to prove it."""
    traces: int
    """All traces: of the unplanned step, of the options, of the proofs."""
    trace_seconds: float
    """Wall time of the unplanned trace and of those that measure the options."""
    solve_seconds: float
    """Wall time in solvers."""
    prove_seconds: float
    """Wall time of tracing plans again."""
    assumptions: tuple[str, ...]
    """What was taken for granted, each a sentence."""
    not_modelled: tuple[str, ...]
    """What the figures leave out, each a phrase."""
    torch_version: str
    memplan_version: str

    @property
    def fits(self) -> bool:
        """Does the traced plan meet the budget?"""
        return self.peak_after_bytes <= self.budget_bytes
