"""``--offload-activations``: what autograd saves in forward waits in host memory until backward asks for it.

As torchtune's ``OffloadActivations`` does it (torchtune/training/_activation_offloading.py) around the model's forward:
parameters, buffers and small tensors stay; each saved tensor is copied on its own, by a second stream, so that the last
few are still on the device; backward brings back one at a time, and nothing in advance.
"""

from collections import deque
from collections.abc import Callable
from typing import Any, NamedTuple
from weakref import WeakSet

import torch
from torch.autograd.graph import saved_tensors_hooks

from memplan.errors import UsageError
from memplan.runtime.checkpoint.host import MOST_LEAVING
from memplan.runtime.checkpoint.offload import LEAST_BYTES

Call = Callable[[torch.nn.Module, Any], Any]
"""``(model, batch)`` → output."""


class _OnHost(NamedTuple):
    copy: torch.Tensor
    device: torch.device


class _Saved:
    """What one forward saves."""

    def __init__(self, model: torch.nn.Module) -> None:
        self._stays = staying(model)
        self._leaving: deque[torch.Tensor] = deque(maxlen=MOST_LEAVING)

    def pack(self, tensor: torch.Tensor) -> Any:
        if self._stays(tensor):
            return tensor
        self._leaving.append(tensor)
        copy = torch.empty_like(tensor, device="cpu", pin_memory=tensor.is_cuda).copy_(tensor, non_blocking=True)
        return _OnHost(copy, tensor.device)

    def unpack(self, packed: Any) -> torch.Tensor:
        self._leaving.clear()
        if not isinstance(packed, _OnHost):
            stayed: torch.Tensor = packed
            return stayed
        return packed.copy.to(packed.device, non_blocking=True)


def staying(model: torch.nn.Module) -> Callable[[torch.Tensor], bool]:
    """Which saved tensors stay as they are: a model's parameters and buffers, small ones, wrappers of others."""
    tensors = (*model.parameters(), *model.buffers())
    own = WeakSet(each.untyped_storage() for each in tensors if _is_plain(each))
    return lambda each: not _is_plain(each) or each.nbytes < LEAST_BYTES or each.untyped_storage() in own


def _is_plain(tensor: torch.Tensor) -> bool:
    # Wrappers of other tensors (DTensor) have no storage of their own.
    return tensor.layout is torch.strided and not hasattr(type(tensor), "__tensor_flatten__")


def offloading(call: Call, device: str) -> Call:
    """A call of the model whose saved tensors go to the host.

    Args:
        call: Calls the model on a batch.
        device: ``cuda``, or ``cpu``, where there is nowhere to go.

    Raises:
        UsageError: The device is the host.
    """
    if device != "cuda":
        raise UsageError("activations of a CPU are on the host", where="--offload-activations", hint="give a GPU")

    def offloaded(model: torch.nn.Module, batch: Any) -> Any:
        saved = _Saved(model)
        with saved_tensors_hooks(saved.pack, saved.unpack):
            return call(model, batch)

    return offloaded
