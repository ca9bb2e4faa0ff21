"""Selective blocks: the results of chosen op calls are kept, and the rest of the forward runs again."""

import warnings
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import torch
from torch import nn
from torch.utils.checkpoint import CheckpointPolicy, create_selective_checkpoint_contexts

from memplan.runtime.checkpoint.mismatch import PlanFallbackWarning, PlanMismatch
from memplan.runtime.checkpoint.records import SavedOp
from memplan.runtime.checkpoint.rerun import checkpointed, current_region
from memplan.seam.pytree import tree_leaves

Rerun = Sequence[Callable[[], AbstractContextManager[Any]]]


@torch.compiler.disable  # type: ignore[untyped-decorator]
def selectively_checkpointed(
    forward: Callable[..., Any],
    arguments: Sequence[Any],
    keywords: Mapping[str, Any],
    *,
    module: nn.Module,
    name: str,
    saved: Sequence[SavedOp],
    strict: bool = True,
    again: Rerun = (),
) -> Any:
    """Run a block's forward and keep the results of some of its op calls.

    ``again`` make the contexts of its second run. ``strict``: every planned call must come, also where all is on the
    CPU.

    Raises:
        PlanMismatch: A planned call did not come, and its kernel was not to be expected to.
    """
    region = current_region()
    if region is not None and not region.again:
        # The region around it runs again before its backward: only then is anything kept.
        def kept() -> AbstractContextManager[Any]:
            return region.kept.pop(id(module), nullcontext())

        return checkpointed(forward, arguments, keywords, modules={name: module}, again=(*again, kept))
    policy = _Policy(saved)
    keeping, using = create_selective_checkpoint_contexts(policy)  # type: ignore[no-untyped-call]
    result = checkpointed(
        forward, arguments, keywords, modules={name: module}, first=keeping, again=(*again, lambda: using)
    )
    if missing := policy.missing():
        tensors = [each for each in tree_leaves((arguments, keywords)) if isinstance(each, torch.Tensor)]
        is_cpu = all(each.device.type == "cpu" for each in (*module.parameters(), *tensors))
        _tell(name, missing, strict=strict or not is_cpu)
    if region is not None:
        # Not earlier: a region's second run ends where its last block would begin.
        region.kept[id(module)] = using
    return result


class _Policy:
    """Decides for every op call of one forward, by the op's name and how often it was called before."""

    def __init__(self, saved: Sequence[SavedOp]) -> None:
        self._saved = {entry.op: frozenset(entry.calls) for entry in saved}
        self._first: Counter[str] = Counter()
        # torch up to 2.6 asks in the second run, too; later versions remember.
        self._second: Counter[str] = Counter()

    def __call__(self, context: Any, op: Any, *_: Any, **__: Any) -> CheckpointPolicy:
        """What ``torch.utils.checkpoint`` asks."""
        counts, name = self._second if context.is_recompute else self._first, str(op)
        call, counts[name] = counts[name], counts[name] + 1
        is_saved = call in self._saved.get(name, ())
        return CheckpointPolicy.MUST_SAVE if is_saved else CheckpointPolicy.PREFER_RECOMPUTE

    def missing(self) -> dict[str, str]:
        """Ops of which planned calls did not come, and how many did."""
        return {
            op: f"call {max(calls)} of {op} (it was called {self._first[op]} times)"
            for op, calls in self._saved.items()
            if max(calls, default=-1) >= self._first[op]
        }


def _tell(block: str, missing: Mapping[str, str], *, strict: bool) -> None:
    if strict:
        raise PlanMismatch(
            f"{block} ran without what the plan keeps: {', '.join(missing.values())}",
            where=block,
            hint="make the plan anew for this model, input, precision and version of torch",
        )
    # Blocks that lack the same get the same words, which Python then shows once.
    warnings.warn(
        f"a plan for a GPU runs on the CPU, where {', '.join(missing)} does not come as planned: what it would keep of"
        " that runs again with its block. Gradients are right; memory and time are not the plan's",
        PlanFallbackWarning,
        stacklevel=2,
    )
