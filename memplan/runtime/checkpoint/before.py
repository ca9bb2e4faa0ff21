"""What modules read of themselves, as it was before a forward: a second run must find it so, and leave no trace.

Most buffers are only read. Copies are made of all, and thrown away where nothing was written.
"""

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Any
from weakref import WeakKeyDictionary

import torch
from torch import nn

_State = list[tuple[dict[str, Any], str, Any]]
"""Where a value stands, its key, and the value."""


class Before:
    """What modules had before a forward that it may read: buffers, mode, and parameters that are only lent to them.

    A second run starts from these and leaves the real ones alone. Whoever writes to its buffers is treated so: batch
    norm's running statistics, the power iteration of spectral norm, code books. ``functional_call`` lends parameters.
    """

    def __init__(self, modules: Iterable[nn.Module]) -> None:
        owners = {id(owner): owner for module in modules for owner in module.modules()}
        self._state = [entry for owner in owners.values() for entry in _state(owner)]
        self._owners = [_Buffers(owner) for owner in owners.values() if any(_buffers(owner))]

    def forget_unwritten(self) -> None:
        """Free what forward only read."""
        self._owners = [owner for owner in self._owners if owner.is_written()]

    @contextmanager
    def in_place(self) -> Iterator[None]:
        """Let the modules find everything as it was before."""
        present = [_Buffers(owner.module, copied=False) for owner in self._owners]
        # What is no longer there was lent by the older FSDP, which brings it back itself.
        former = [entry for entry in self._state if entry[1] in entry[0]]
        state: _State = [(place, key, place[key]) for place, key, _ in former]
        _put(former)
        for owner in self._owners:
            owner.put(copied=True)
        try:
            yield
        finally:
            for owner in present:
                owner.put(copied=False)
            _put(state)


def _state(module: nn.Module) -> Iterator[tuple[dict[str, Any], str, Any]]:
    if isinstance(module, torch.jit.ScriptModule):
        # It holds all of its state itself, and takes none.
        return
    yield vars(module), "training", module.training
    # Not those of its own: FSDP2 puts gathered and sharded ones there in turn.
    parameters = module._parameters  # noqa: SLF001  # nothing public takes what is no ``nn.Parameter``
    for name, tensor in parameters.items():
        if tensor is not None and not isinstance(tensor, nn.Parameter):
            yield parameters, name, tensor


def _put(state: _State) -> None:
    for place, key, value in state:
        place[key] = value


_unseen: WeakKeyDictionary[nn.Module, dict[bool, bool]] = WeakKeyDictionary()
"""Module → mode → does it write to its buffers past the version counter (``.data``, a kernel of its own)?"""


class _Buffers:
    """A module's own buffers at one moment."""

    def __init__(self, module: nn.Module, *, copied: bool = True) -> None:
        self.module = module
        self._seen = {name: (id(buffer), version(buffer)) for name, buffer in _buffers(module)}
        self._content = {name: buffer.detach().clone() if copied else buffer for name, buffer in _buffers(module)}

    def is_written(self) -> bool:
        """Has the module written to any since?"""
        # The kernels of batch and instance norm write to running statistics without telling the version counter.
        if any(name.startswith("running_") or self._differs(name, buffer) for name, buffer in _buffers(self.module)):
            return True
        # Comparing waits for the device, hence once. What is traced (a subclass) has no values.
        unseen = _unseen.setdefault(self.module, {})
        if self.module.training not in unseen:
            unseen[self.module.training] = any(
                type(buffer) is torch.Tensor and not _is_alike(self._content[name], buffer)
                for name, buffer in _buffers(self.module)
            )
        return unseen[self.module.training]

    def _differs(self, name: str, buffer: torch.Tensor) -> bool:
        return self._seen.get(name) != (id(buffer), version(buffer))

    def put(self, *, copied: bool) -> None:
        """Make them, or copies of them, the module's buffers."""
        for name, buffer in self._content.items():
            setattr(self.module, name, buffer.clone() if copied else buffer)


def _buffers(module: nn.Module) -> Iterator[tuple[str, torch.Tensor]]:
    return module.named_buffers(recurse=False, remove_duplicate=False)


def _is_alike(one: torch.Tensor, other: torch.Tensor) -> bool:
    if one.is_meta or one.is_quantized or one.layout is not torch.strided:
        return True
    # Not every kind of number can be compared as such.
    first, second = (tensor.detach().reshape(-1).view(torch.uint8) for tensor in (one, other))
    return torch.equal(first, second)


def version(value: Any) -> int:
    """How often a tensor has been written to; 0 for everything else."""
    # Nothing may write to an inference tensor outside inference mode.
    if not isinstance(value, torch.Tensor) or value.is_inference():
        return 0
    return value._version  # noqa: SLF001  # the only way to see writes
