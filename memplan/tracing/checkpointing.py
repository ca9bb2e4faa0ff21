"""``--checkpoint``: activation checkpointing put on a model from outside, as a training script would write it.

What a training process does with a plan is done here with the same code (``memplan.runtime.checkpoint``). Models of
transformers and diffusers have a switch of their own for checkpointing, which loading them has already turned.
"""

from collections.abc import Sequence
from contextlib import nullcontext
from pathlib import Path

import torch
from torch import nn

from memplan.errors import UsageError
from memplan.runtime.checkpoint.apply import AppliedPlan, apply
from memplan.runtime.checkpoint.blocks import contents, repeated_blocks
from memplan.runtime.checkpoint.host import Leaving, Returning
from memplan.runtime.checkpoint.plan_file import read_plan
from memplan.runtime.checkpoint.planned import Recomputing
from memplan.runtime.checkpoint.records import Action, BlockPlan, CheckpointPlan
from memplan.seam.fake import FakeTensor

# transformers 5 (modeling_utils.py) warns at its old name, which diffusers (modeling_utils.py) still uses.
_OWN_SWITCHES = ("is_activation_checkpointing", "is_gradient_checkpointing")
_VERBS = {
    Action.CHECKPOINT: "checkpointing",
    Action.SELECTIVE: "selective checkpointing",
    Action.OFFLOAD: "offloading",
}


def apply_checkpointing(model: nn.Module, choice: str, recomputing: Recomputing = nullcontext) -> AppliedPlan | None:
    """Put ``--checkpoint full`` or a plan file into force.

    Args:
        model: The model; changed in place, unless it already does its own checkpointing of every block.
        choice: ``full`` or the path of a plan file.
        recomputing: Context of each recomputation.

    Returns:
        The plan in force; None where the model's own switch is on.

    Raises:
        UsageError: There is nothing to checkpoint, or the plan does not fit the model.
    """
    if choice == "full" and _checkpoints_itself(model):
        return None
    plan = full_plan(model) if choice == "full" else read_plan(Path(choice))
    host = _UncountedHost() if any(isinstance(parameter, FakeTensor) for parameter in model.parameters()) else None
    try:
        return apply(model, plan, recomputing=recomputing, host=host, strict=True)
    except UsageError as error:
        error.where = f"--checkpoint {choice}"
        raise


def full_plan(model: nn.Module) -> CheckpointPlan:
    """Checkpointing of every repeated block.

    Raises:
        UsageError: No block repeats.
    """
    names = repeated_blocks(model)
    if not names:
        seen = "; ".join(contents(model)) or "the model has no ModuleList, ModuleDict or Sequential"
        raise UsageError(
            f"{type(model).__name__} has no repeated blocks to checkpoint",
            where="--checkpoint full",
            hint=f'name the modules in a plan file, {{"modules": ["..."]}} ({seen})',
        )
    return CheckpointPlan(blocks=tuple(BlockPlan(module=name, action=Action.CHECKPOINT) for name in names))


def described(applied: AppliedPlan | None) -> str:
    """A sentence for the report: what is done to how many modules, and to which."""
    if applied is None:
        return "activation checkpointing of every block, by the model's own switch"
    segments = [f"one segment of {_listed(segment.modules)}" for segment in applied.plan.segments]
    by_verb: dict[str, list[str]] = {}
    for block in applied.blocks:
        if block.action in _VERBS:
            by_verb.setdefault(_VERBS[block.action], []).append(block.module)
    done = [*(f"{verb} of {_listed(names)}" for verb, names in by_verb.items()), *segments]
    return f"activation {'; '.join(done)}" if done else "a plan under which every block keeps its activations"


class _UncountedHost:
    """Host memory in a trace, where device and host look alike: what is there is no tensor at all."""

    def __init__(self) -> None:
        self._leaving = Leaving()
        self._stream: torch.cuda.Stream | None = None

    def take(self, flat: torch.Tensor) -> tuple[torch.Size, torch.dtype, torch.device]:
        """Let the device's memory go, which a stream copies."""
        if flat.is_cuda:
            self._stream = self._stream or torch.cuda.Stream(flat.device)  # type: ignore[no-untyped-call]
            self._leaving.add(flat, self._stream)
        return flat.shape, flat.dtype, flat.device

    def give(self, taken: tuple[torch.Size, torch.dtype, torch.device]) -> Returning:
        """Allocate it again."""
        shape, dtype, device = taken
        return Returning(torch.empty(shape, dtype=dtype, device=device))


def _checkpoints_itself(model: nn.Module) -> bool:
    return bool(next((getattr(model, switch) for switch in _OWN_SWITCHES if hasattr(model, switch)), False))


def _listed(names: Sequence[str]) -> str:
    ends = names[0] if len(names) == 1 else f"{names[0]} … {names[-1]}"
    return f"{len(names)} block{'s' if len(names) > 1 else ''}: {ends}"
