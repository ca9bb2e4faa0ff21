"""Running something again in backward: ``torch.utils.checkpoint``, with what it leaves to its callers put right.

Checkpoint takes care of random numbers and autocast. Not so of buffers that a forward writes to (running statistics
would be updated twice), of a mode or parameters that are others by then (``eval`` before ``backward``,
``functional_call``), of caches of keys and values (they would grow twice), and of what nests::

    region            first run          runs again in backward
    ├── checkpoint    keeps its input    keeps its input
    ├── selective     keeps its input    keeps its input and what its plan says
    └── keep          keeps nothing      keeps everything

Results that a selective block keeps are worth their memory only once the region around it runs for its backward.
"""

import copy
import inspect
import sys
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext
from typing import Any

import torch
from torch import nn
from torch.utils.checkpoint import checkpoint

from memplan.runtime.checkpoint.before import Before, version
from memplan.runtime.checkpoint.mismatch import PlanMismatch
from memplan.seam.pytree import tree_leaves

_CACHES = "transformers.cache_utils"
# From torch 2.15 on, kept results can go through the user's own hooks for saved tensors as all others do.
_HOOKED = "respect_saved_tensors_hooks"
_OPTIONS: dict[str, Any] = {_HOOKED: True} if _HOOKED in inspect.signature(checkpoint).parameters else {}


class RerunRegion:
    """One call of something that runs again as a whole, and what its second run leaves for the blocks inside it."""

    def __init__(self) -> None:
        self._runs = 0
        self.kept: dict[int, AbstractContextManager[Any]] = {}
        """By ``id`` of a selective block: the context that hands its kept results to its own second run."""

    @property
    def again(self) -> bool:
        """Is this not its first run?"""
        return self._runs > 1

    @contextmanager
    def running(self) -> Iterator[None]:
        """Say that what follows runs inside this region."""
        outer = current_region()
        self._runs += 1
        _thread.region = self
        try:
            yield
        finally:
            # Checkpoint ends a second run early, by an exception.
            _thread.region = outer


# Autograd runs backward, and so second runs, in threads of its own.
_thread = threading.local()


def current_region() -> RerunRegion | None:
    """The innermost region that runs in this thread."""
    return getattr(_thread, "region", None)


# Under ``torch.compile`` it runs eagerly: dynamo stops at contexts that are no plain functions.
@torch.compiler.disable  # type: ignore[untyped-decorator]
def checkpointed(
    function: Callable[..., Any],
    arguments: Sequence[Any],
    keywords: Mapping[str, Any],
    *,
    modules: Mapping[str, nn.Module],
    first: AbstractContextManager[Any] | None = None,
    again: Sequence[Callable[[], AbstractContextManager[Any]]] = (),
) -> Any:
    """Call a function whose activations are not kept: backward calls it again.

    The function must not hold on to its arguments. ``first`` is the context of the first run; ``again`` make those of a
    further run, outermost first.

    Raises:
        PlanMismatch: It writes to an argument, from which a further run could not start.
    """
    count, names, region, before = len(arguments), tuple(keywords), RerunRegion(), Before(modules.values())

    def run(*values: Any) -> Any:
        own = [_without_writing_back(value) for value in values]
        with region.running():
            return function(*own[:count], **dict(zip(names, own[count:], strict=True)))

    contexts = first or nullcontext(), _Contexts((before.in_place, *again))
    # Keywords go as arguments: checkpoint lets a checkpoint around it keep its arguments, but not its keywords.
    values = (*arguments, *keywords.values())
    versions = list(map(version, values))
    result = checkpoint(run, *values, use_reentrant=False, context_fn=lambda: contexts, **_OPTIONS)
    before.forget_unwritten()
    if versions != list(map(version, values)) and _has_gradient(result):
        name = next(iter(modules))
        raise PlanMismatch(
            f"{name} writes to its own input in place and cannot run again",
            where=name,
            hint="write inplace=False where it begins, or let the plan keep or offload it",
        )
    return result


def _has_gradient(result: Any) -> bool:
    return any(isinstance(leaf, torch.Tensor) and leaf.requires_grad for leaf in tree_leaves(result))


class _Contexts:
    """Several contexts as one that can be entered once per backward of a retained graph."""

    def __init__(self, make: Sequence[Callable[[], AbstractContextManager[Any]]]) -> None:
        self._make = make
        self._entered = ExitStack()

    def __enter__(self) -> None:
        with ExitStack() as stack:
            for make in self._make:
                stack.enter_context(make())
            self._entered = stack.pop_all()

    def __exit__(self, *error: object) -> None:
        self._entered.__exit__(*error)  # type: ignore[arg-type]


def _without_writing_back(value: Any) -> Any:
    """Of a cache of transformers: a twin with the same tensors.

    What a block writes to the real one would be kept until the end of the forward, and written again in backward.
    """
    module = sys.modules.get(_CACHES)
    return _twin(value) if module is not None and isinstance(value, module.Cache) else value


def _twin(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _twin(item) for key, item in value.items()}
    if isinstance(value, list):
        return [_twin(item) for item in value]
    if type(value).__module__ != _CACHES or not hasattr(value, "__dict__"):
        return value
    twin = copy.copy(value)
    vars(twin).update({name: _twin(item) for name, item in vars(value).items()})
    return twin
