"""Checkpointed blocks inside a compiled region: the partitioner recomputes what is marked, as it does after Dynamo."""

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from itertools import count
from typing import Any

import torch.fx.traceback
import torch.utils.checkpoint
from torch.utils.checkpoint import CheckpointPolicy, noop_context_fn

from memplan.seam.patches.compiled import NON_REENTRANT
from memplan.seam.replace import Replacement, replaced

_NUMBERS = count()


def tagged_checkpoints() -> AbstractContextManager[None]:
    """Let ``checkpoint()`` run its function once, its nodes marked.

    Source: torch/_higher_order_ops/wrap.py ``TagActivationCheckpoint.tag_nodes``.
    """
    return replaced(
        (
            *(Replacement(row.path, _BY_NAME.get(row.name, _without_reentrant)) for row in NON_REENTRANT),
            Replacement("torch.utils.checkpoint.CheckpointFunction.apply", _reentrant),
        )
    )


def _without_reentrant(
    function: Callable[..., Any],
    preserve: bool = True,
    context_fn: Callable[[], tuple[Any, Any]] = noop_context_fn,
    *options: Any,
    **keywords: Any,
) -> Iterator[None]:
    """``checkpoint`` calls the function between two steps of this generator.

    Where layers are checkpointed selectively, the mode of their ``context_fn`` marks each op anew by its policy, if it
    finds that it is compiled (torch/utils/checkpoint.py ``_CachingTorchDispatchMode``); other contexts leave the marks.
    """
    del function, preserve, options, keywords
    return _marking(context_fn)


def _without_reentrant_impl(
    function: Callable[..., Any],
    args: tuple[Any, ...],
    kwargs: dict[str, Any],
    *,
    context_fn: Callable[[], tuple[Any, Any]] = noop_context_fn,
    **options: Any,
) -> Iterator[None]:
    """The same as later releases call it."""
    del function, args, kwargs, options
    return _marking(context_fn)


_BY_NAME = {"_checkpoint_without_reentrant_generator_impl": _without_reentrant_impl}


def _marking(context_fn: Callable[[], tuple[Any, Any]]) -> Iterator[None]:
    forward, _ = context_fn()
    with _marked() as number, forward:
        if hasattr(forward, "ac_graph_id"):
            forward.ac_graph_id = number
        yield


def _reentrant(function: Callable[..., Any], preserve: bool, *args: Any) -> Any:
    del preserve
    with _marked():
        return function(*args)


@contextmanager
def _marked() -> Iterator[int]:
    """Nodes made in here carry the marks; yields their number."""
    meta = torch.fx.traceback.current_meta
    marks: dict[str, Any] = {"recompute": CheckpointPolicy.PREFER_RECOMPUTE, "ac_graph_id": next(_NUMBERS)}
    with torch.fx.traceback.preserve_node_meta():
        former = {name: meta[name] for name in marks if name in meta}
        meta.update(marks)
        try:
            yield marks["ac_graph_id"]
        finally:
            for name in marks:
                meta.pop(name, None)
            meta.update(former)
