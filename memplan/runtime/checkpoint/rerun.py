"""Running something again in backward: ``torch.utils.checkpoint``, with what it leaves to its callers put right.

Checkpoint takes care of random numbers and autocast. Not so of buffers that a forward writes to (running statistics
would be updated twice), of caches of keys and values (they would grow twice), and of what nests::

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
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext
from typing import Any

import torch
from torch import nn
from torch.utils.checkpoint import checkpoint

_CACHES = "transformers.cache_utils"
# From torch 2.15 on, kept results can go through the user's own hooks for saved tensors as all others do.
_HOOKED = "respect_saved_tensors_hooks"
_OPTIONS: dict[str, Any] = {_HOOKED: True} if _HOOKED in inspect.signature(checkpoint).parameters else {}


class Region:
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


def current_region() -> Region | None:
    """The innermost region that runs in this thread."""
    return getattr(_thread, "region", None)


# Under ``torch.compile`` it runs eagerly: dynamo stops at contexts that are no plain functions.
@torch.compiler.disable  # type: ignore[untyped-decorator]
def checkpointed(
    function: Callable[..., Any],
    arguments: Sequence[Any],
    keywords: Mapping[str, Any],
    *,
    modules: Iterable[nn.Module],
    first: AbstractContextManager[Any] | None = None,
    again: Sequence[Callable[[], AbstractContextManager[Any]]] = (),
) -> Any:
    """Call a function whose activations are not kept: backward calls it again.

    Args:
        function: What to call; it must not hold on to its arguments.
        arguments: Its positional arguments.
        keywords: Its keyword arguments.
        modules: Modules that it runs.
        first: Context of the first run.
        again: Make the contexts of a further run, outermost first.

    Returns:
        What the function returns.
    """
    count, names, region, buffers = len(arguments), tuple(keywords), Region(), _BuffersBefore(modules)

    def run(*values: Any) -> Any:
        own = [_without_writing_back(value) for value in values]
        with region.running():
            return function(*own[:count], **dict(zip(names, own[count:], strict=True)))

    contexts = first or nullcontext(), _Contexts((buffers.in_place, *again))
    # Keywords go as arguments: checkpoint lets a checkpoint around it keep its arguments, but not its keywords.
    values = (*arguments, *keywords.values())
    result = checkpoint(run, *values, use_reentrant=False, context_fn=lambda: contexts, **_OPTIONS)
    buffers.forget_unwritten()
    return result


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


class _BuffersBefore:
    """Buffers of modules as they were before a forward.

    A second run starts from these and leaves the real ones alone. Whoever writes to its buffers is treated so: batch
    norm's running statistics, the power iteration of spectral norm, code books.
    """

    def __init__(self, modules: Iterable[nn.Module]) -> None:
        owners = {id(owner): owner for module in modules for owner in module.modules()}
        self._owners = [_Buffers(owner) for owner in owners.values() if any(_buffers(owner))]

    def forget_unwritten(self) -> None:
        """Free what forward only read."""
        self._owners = [owner for owner in self._owners if owner.is_written()]

    @contextmanager
    def in_place(self) -> Iterator[None]:
        """Let the modules find their buffers as they were before."""
        present = [_Buffers(owner.module, copied=False) for owner in self._owners]
        for owner in self._owners:
            owner.put(copied=True)
        try:
            yield
        finally:
            for owner in present:
                owner.put(copied=False)


class _Buffers:
    """A module's own buffers at one moment."""

    def __init__(self, module: nn.Module, *, copied: bool = True) -> None:
        self.module = module
        self._seen = {name: (buffer, _version(buffer)) for name, buffer in _buffers(module)}
        self._content = {name: buffer.detach().clone() if copied else buffer for name, buffer in _buffers(module)}

    def is_written(self) -> bool:
        """Has the module written to any since?"""
        # The kernels of batch and instance norm write to running statistics without telling the version counter.
        return any(name.startswith("running_") or self._differs(name, buffer) for name, buffer in _buffers(self.module))

    def _differs(self, name: str, buffer: torch.Tensor) -> bool:
        seen, version = self._seen.get(name, (None, 0))
        return buffer is not seen or _version(buffer) != version

    def put(self, *, copied: bool) -> None:
        """Make them, or copies of them, the module's buffers."""
        for name, buffer in self._content.items():
            setattr(self.module, name, buffer.clone() if copied else buffer)


def _buffers(module: nn.Module) -> Iterator[tuple[str, torch.Tensor]]:
    return module.named_buffers(recurse=False, remove_duplicate=False)


def _version(buffer: torch.Tensor) -> int:
    # Nothing may write to an inference tensor outside inference mode.
    return 0 if buffer.is_inference() else buffer._version  # noqa: SLF001  # the only way to see writes


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
