"""``memplan.apply``: a plan put into force on a model, and taken back."""

import os
from collections.abc import Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Self

from torch import nn

from memplan.errors import UsageError
from memplan.runtime.checkpoint.blocks import bare, check_fingerprint, modules_named
from memplan.runtime.checkpoint.host import Host, PinnedHost
from memplan.runtime.checkpoint.members import put_segments
from memplan.runtime.checkpoint.mismatch import PlanMismatch
from memplan.runtime.checkpoint.plan_file import check_plan, read_plan
from memplan.runtime.checkpoint.planned import Recomputing, planned_forwards, put_blocks, refuse_own_checkpointing
from memplan.runtime.checkpoint.records import Action, BlockPlan, CheckpointPlan, Segment, is_for_gpu


@dataclass(frozen=True, slots=True, kw_only=True)
class AppliedPlan:
    """A plan in force; as a context manager it ends with the context."""

    model: nn.Module
    """The model."""
    plan: CheckpointPlan
    """The plan."""
    blocks: tuple[BlockPlan, ...]
    """The plan's blocks with their patterns resolved, each module once."""

    def remove(self) -> None:
        """Give every module its own forward back."""
        remove(self.model)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.remove()


def apply(
    model: nn.Module,
    plan: CheckpointPlan | str | os.PathLike[str],
    *,
    recomputing: Recomputing = nullcontext,
    host: Host | None = None,
    strict: bool = False,
) -> AppliedPlan:
    """Let a model's modules do what a plan says.

    Gradients stay what they were. Names of parameters, hooks, ``state_dict``, copies and pickles stay as they are;
    whatever runs without gradients runs as without the plan. Wrap the model (DDP, FSDP2) before or after.

    A plan that was made for a GPU also runs on the CPU, to be tried before a GPU is rented: an op call that it keeps
    and that the CPU does not make runs again with its block, and a ``PlanFallbackWarning`` says so. On a GPU, and on
    the CPU under a plan for the CPU, that is a ``PlanMismatch``.

    Args:
        model: The model, changed in place.
        plan: The plan, or the path of its file.
        recomputing: Makes the context of a module's second run.
        host: Where offloaded tensors wait; pinned memory by default.
        strict: Hold a plan for a GPU to its op calls on the CPU, too.

    Returns:
        What takes the plan back.

    Raises:
        PlanMismatch: The plan does not fit the model.
        UsageError: The plan is malformed, or one is in force already.
    """
    where = None if isinstance(plan, CheckpointPlan) else os.fspath(plan)
    plan = plan if isinstance(plan, CheckpointPlan) else read_plan(Path(plan))
    target = bare(model)
    try:
        check_plan(plan)
        _check_free(target)
        if plan.fingerprint is not None:
            check_fingerprint(target, plan.fingerprint)
        blocks = _blocks(target, plan.blocks)
        segments = [modules_named(target, segment.modules) for segment in plan.segments]
        _check_segments(plan.segments, segments)
        resolved = tuple(block for _, block in blocks.values())
        # Patterns may have named modules inside each other.
        check_plan(replace(plan, blocks=resolved))
        _check_switches(target, resolved, plan.segments)
    except UsageError as error:
        error.where = where or error.where or "memplan.apply"
        raise
    strict = strict or not is_for_gpu(plan)
    put_blocks(target, resolved, recomputing, host or PinnedHost(), prefetch=plan.prefetch, strict=strict)
    put_segments(target, plan.segments)
    return AppliedPlan(model=model, plan=plan, blocks=resolved)


def remove(model: nn.Module) -> None:
    """Take a plan back from a model or a copy of one; nothing happens where none is in force."""
    for forward in list(planned_forwards(model)):
        forward.remove()


def _check_free(model: nn.Module) -> None:
    if next(planned_forwards(model), None) is not None:
        raise UsageError(
            f"a plan is already in force on this {type(model).__name__}",
            hint="call .remove() on what memplan.apply returned, or memplan.runtime.checkpoint.apply.remove(model)",
        )


def _blocks(model: nn.Module, planned: Sequence[BlockPlan]) -> dict[int, tuple[nn.Module, BlockPlan]]:
    """Planned modules, each once though it may have several names, by ``id``."""
    found: dict[int, tuple[nn.Module, BlockPlan]] = {}
    # Asked at once, so that an error names everything that is missing.
    modules_named(model, [block.module for block in planned])
    for block in planned:
        for name, module in modules_named(model, [block.module]).items():
            _, known = found.setdefault(id(module), (module, replace(block, module=name)))
            if (known.action, known.saved) != (block.action, block.saved):
                raise PlanMismatch(f"{known.module} and {name} are one module, planned in two ways")
    return found


def _check_switches(model: nn.Module, blocks: Sequence[BlockPlan], segments: Sequence[Segment]) -> None:
    """Nothing around a planned block, and nothing inside, may checkpoint itself; what stands beside it may."""
    planned = [f"{block.module}." for block in blocks if block.action is not Action.KEEP]
    planned += [f"{name}." for segment in segments for name in segment.modules]
    for name, module in model.named_modules():
        path = f"{name}." if name else ""
        if any(path.startswith(one) or one.startswith(path) for one in planned):
            refuse_own_checkpointing(name, module)


def _check_segments(planned: Sequence[Segment], segments: Sequence[Mapping[str, nn.Module]]) -> None:
    for segment, modules in zip(planned, segments, strict=True):
        names = ", ".join(segment.modules)
        if tuple(modules) != segment.modules:
            raise PlanMismatch(f"the segment {names} must name its blocks one by one")
        if len({id(module) for module in modules.values()}) < len(modules):
            raise PlanMismatch(f"the segment {names} runs one module twice")
        # ``nn.Module.compile`` sets it.
        compiled = [name for name, module in modules.items() if module.__dict__.get("_compiled_call_impl") is not None]
        if compiled:
            raise PlanMismatch(f"{compiled[0]} is compiled and cannot stand in a segment")
