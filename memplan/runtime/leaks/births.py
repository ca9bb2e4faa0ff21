"""Which storages are born in a few sampled steps, by which line; and which of them are still there later.

Storages are remembered by weak references of C++ (``StorageWeakRef``). They tell the truth also where no Python object
is left, as for tensors that autograd saves.
"""

import sys
from typing import Any, NamedTuple

import torch
from torch.multiprocessing.reductions import StorageWeakRef

from memplan.runtime.leaks.heap import live_tensors, storage_id
from memplan.runtime.leaks.records import Origin
from memplan.seam.modes import TorchDispatchMode
from memplan.seam.pytree import tree_leaves

_LIBRARIES = tuple(f"{each.rpartition('/')[0]}/" for each in (torch.__file__, __file__))
"""Folders whose frames say nothing about who allocates."""


class Birth(NamedTuple):
    """A storage as it was born."""

    storage: StorageWeakRef
    """Itself, weakly."""
    step: int
    """In which sampled step."""
    place: Origin | None
    """User code nearest to it."""
    op: str
    """What allocated it."""
    nbytes: int
    """Its size."""
    shape: tuple[int, ...]
    """Of the tensor that came with it."""
    dtype: str
    """Likewise."""

    @property
    def alive(self) -> bool:
        """Is its memory still there?"""
        return not self.storage.expired()  # type: ignore[no-untyped-call]


class Births(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Writes down births while it is entered."""

    def __init__(self, device: str) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.step = 0
        """The sampled step, to be counted up by whoever samples."""
        self.births: list[Birth] = []
        """So far."""
        self._device = device
        # Weak references also keep an address from being used again for another storage.
        self._known: dict[int, StorageWeakRef] = {}
        for tensor in live_tensors(device):
            self._is_new(tensor)

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Run the op, and look for storages that were not there."""
        kwargs = kwargs or {}
        # What nobody saw being born comes from outside of dispatch: from_numpy, another thread, a worker.
        self._look((args, kwargs), "outside of torch's ops")
        result = func(*args, **kwargs)
        self._look(result, str(func))
        return result

    def _look(self, tree: Any, op: str) -> None:
        for tensor in tree_leaves(tree):
            if isinstance(tensor, torch.Tensor) and tensor.device.type == self._device and self._is_new(tensor):
                nbytes = tensor.untyped_storage().nbytes()
                if nbytes:
                    self.births.append(
                        Birth(
                            self._known[storage_id(tensor)], self.step, place_here(), op, nbytes,
                            tuple(tensor.shape), str(tensor.dtype).removeprefix("torch."),
                        )
                    )  # fmt: skip

    def _is_new(self, tensor: torch.Tensor) -> bool:
        address = storage_id(tensor)
        if not address or address in self._known:
            return False
        self._known[address] = StorageWeakRef(tensor.untyped_storage())  # type: ignore[no-untyped-call]
        return True


def place_here() -> Origin | None:
    """The innermost frame that is neither torch's nor memplan's."""
    frame = sys._getframe(1)  # noqa: SLF001 - the only way to a caller's frame at this price.
    while frame is not None:
        code = frame.f_code
        if not code.co_filename.startswith((*_LIBRARIES, "<")):
            return code.co_filename, frame.f_lineno, code.co_name
        if frame.f_back is None:
            return None
        frame = frame.f_back
    return None
