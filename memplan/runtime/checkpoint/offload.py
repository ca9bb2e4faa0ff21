"""Offloaded blocks: what autograd saves in their forward waits on the host until their backward.

::

    forward    ends ──► copies to the host (a stream of its own) ──► device memory free
    backward   first use of anything saved ──► all of the block is copied back ──► used

Copies back go by the stream that computes, which waits for them: what a block needs is on the device from its backward
on and no earlier, however far Python runs ahead, and takes the time that a plan says.

Whole storages are moved, once each, however many saved tensors are views of one.
"""

from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, Protocol
from weakref import WeakKeyDictionary, WeakSet

import torch
from torch import nn
from torch.autograd.graph import saved_tensors_hooks

LEAST_BYTES = 1024
"""Smaller storages stay (torchtune, training/_activation_offloading.py: ``min_offload_size``)."""

MOST_LEAVING = 5
"""Storages whose copies to the host may be unfinished (the same: ``max_fwd_stash_size``)."""

_WRITTEN_TO = "one of the variables needed for gradient computation has been modified by an inplace operation"


class Host(Protocol):
    """Where saved tensors wait. Tracing puts its own in this place."""

    def take(self, flat: torch.Tensor) -> Any:
        """Copy a one-dimensional tensor away; the copy need not be finished on return."""

    def give(self, taken: Any) -> torch.Tensor:
        """Copy it back to the device that it came from; what runs there next may use it."""


class PinnedHost:
    """Pinned memory, which CUDA devices copy to by a stream of its own; plain copies for other devices."""

    def __init__(self) -> None:
        self._streams: dict[torch.device, torch.cuda.Stream] = {}
        self._leaving: deque[torch.cuda.Event] = deque()

    def __reduce__(self) -> tuple[Any, ...]:
        """Streams stay with their process."""
        return PinnedHost, ()

    def take(self, flat: torch.Tensor) -> tuple[torch.Tensor, torch.device]:
        """Copy to the host."""
        if not flat.is_cuda:
            return flat.to("cpu", copy=True), flat.device
        stream = self._stream(flat.device)
        host = torch.empty(flat.shape, dtype=flat.dtype, pin_memory=True)
        stream.wait_stream(torch.cuda.current_stream(flat.device))
        with torch.cuda.stream(stream):
            host.copy_(flat, non_blocking=True)
        # The allocator must not hand the memory on before it is copied.
        flat.record_stream(stream)
        self._leaving.append(stream.record_event())
        if len(self._leaving) > MOST_LEAVING:
            # Python runs ahead of the device: without a wait nothing of a forward would be free for the rest of it.
            self._leaving.popleft().synchronize()
        return host, flat.device

    def give(self, taken: tuple[torch.Tensor, torch.device]) -> torch.Tensor:
        """Copy back."""
        host, device = taken
        if device.type != "cuda":
            return host.to(device, copy=True)
        # The copy to the host went by the other stream, and may not be finished.
        torch.cuda.current_stream(device).wait_stream(self._stream(device))
        return host.to(device, non_blocking=True)

    def _stream(self, device: torch.device) -> torch.cuda.Stream:
        if device not in self._streams:
            self._streams[device] = torch.cuda.Stream(device)  # type: ignore[no-untyped-call]
        return self._streams[device]


@contextmanager
def offloading(module: nn.Module, host: Host) -> Iterator[None]:
    """Move away what autograd saves within this context.

    Args:
        module: Whose parameters and buffers stay where they are, as do views of them.
        host: Takes and gives back.
    """
    staying: WeakSet[torch.UntypedStorage] = WeakSet()
    for tensor in (*module.parameters(), *module.buffers()):
        if _is_plain(tensor):
            staying.add(tensor.untyped_storage())
    block = _Saved(host, staying)
    with saved_tensors_hooks(block.pack, _unpack):
        yield
    block.move()


@dataclass(slots=True, kw_only=True)
class _Storage:
    """A storage that waits on the host."""

    taken: Any = None
    """What the host returned for it; None before it is moved, and if it was written to before that."""
    version: int
    """Of the tensor when it was saved: nobody may write to it after that."""
    dtype: torch.dtype
    """Of ``flat``."""
    saved: int = 0
    """Saved tensors that are views of it."""
    unused: int = 0
    """How many of these still wait for ``flat`` in the present backward."""
    flat: torch.Tensor | None = None
    """On the device again."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Packed:
    """What autograd holds in place of a saved tensor."""

    storage: _Storage
    """Its storage."""
    view: Callable[[torch.Tensor], torch.Tensor]
    """Makes it of the flat tensor."""
    give_back: Callable[[_Storage], None]
    """Brings its storage back, and at first the whole block with it."""


@dataclass(slots=True)
class _Saved:
    """Everything that one forward of a block saves."""

    host: Host
    staying: WeakSet[torch.UntypedStorage]
    moved: WeakKeyDictionary[torch.UntypedStorage, _Storage] = field(default_factory=WeakKeyDictionary)
    """By the storage on the device, as long as anything else holds it."""
    storages: list[_Storage] = field(default_factory=list)
    waiting: list[tuple[_Storage, torch.Tensor]] = field(default_factory=list)
    """What is saved and not moved yet."""
    is_given: bool = False
    """Has a backward brought everything back once?"""

    def pack(self, tensor: torch.Tensor) -> Any:
        """Move a tensor's storage away, unless it stays."""
        if not _is_plain(tensor) or tensor.untyped_storage() in self.staying or _stays(tensor):
            return tensor
        entry = self._entry(tensor)
        entry.saved += 1
        dtype, shape, strides, offset = tensor.dtype, tensor.shape, tensor.stride(), tensor.storage_offset()

        def view(flat: torch.Tensor) -> torch.Tensor:
            same = flat if flat.dtype == dtype else flat.view(dtype)
            return same.as_strided(shape, strides, offset)

        return _Packed(storage=entry, view=view, give_back=self.give_back)

    def move(self) -> None:
        """Move what waits. An op may write to what it has saved (the noise of ``rrelu``), hence not at once."""
        while self.waiting:
            # One by one: what is copied must be free before the rest is.
            entry, flat = self.waiting.pop(0)
            # What others have written to is lost, as it is to autograd; backward complains if it needs it.
            if flat._version == entry.version:  # noqa: SLF001
                entry.taken = self.host.take(flat)

    def give_back(self, needed: _Storage) -> None:
        """Begin to copy everything back, what is needed first (it was saved last) at the front.

        Whoever asks again, over a retained graph or twice for one tensor, gets no more than it asks for.
        """
        self.move()
        for entry in (needed,) if self.is_given else reversed(self.storages):
            if entry.taken is not None:
                entry.flat, entry.unused = self.host.give(entry.taken), entry.saved
        self.is_given = True

    def _entry(self, tensor: torch.Tensor) -> _Storage:
        storage = tensor.untyped_storage()
        entry = self.moved.get(storage)
        if entry is None or entry.version != tensor._version:  # noqa: SLF001  # the only way to see writes
            length = storage.nbytes() // tensor.element_size()
            flat = tensor.detach().as_strided((length,), (1,), 0)
            entry = _Storage(version=tensor._version, dtype=tensor.dtype)  # noqa: SLF001
            self.waiting.append((entry, flat))
            self.moved[storage] = entry
            self.storages.append(entry)
        return entry


def _unpack(packed: Any) -> torch.Tensor:
    if not isinstance(packed, _Packed):
        stays: torch.Tensor = packed
        return stays
    entry = packed.storage
    if entry.flat is None:
        packed.give_back(entry)
    if entry.flat is None:
        raise RuntimeError(_WRITTEN_TO)
    tensor = packed.view(entry.flat)
    entry.unused -= 1
    if not entry.unused:
        entry.flat = None
    return tensor


def _is_plain(tensor: torch.Tensor) -> bool:
    # Subclasses that wrap other tensors (DTensor) have no storage of their own.
    return tensor.layout is torch.strided and not hasattr(type(tensor), "__tensor_flatten__")


def _stays(tensor: torch.Tensor) -> bool:
    """Is it a parameter or a view of one, a lazy conjugate, or too small?"""
    base = tensor if tensor._base is None else tensor._base  # noqa: SLF001  # what it is a view of
    if isinstance(base, nn.Parameter) or tensor.is_conj() or tensor.is_neg() or tensor.is_inference():
        return True
    return tensor.untyped_storage().nbytes() < LEAST_BYTES
