"""Offloaded blocks: what autograd saves in their forward waits on the host until their backward.

::

    forward    ends ──► copies to the host ──► device memory free
    backward   first use of anything saved ──► all of the block is copied back ──► waited for ──► used
                                           └─► then all of the block whose backward comes next, if fetched ahead

Without fetching ahead, what a block needs is on the device from its backward on and no earlier, however far Python runs
ahead. With it, the next block's tensors are on the device, too, and have this block's backward to come back in.

Whole storages are moved, once each, however many saved tensors are views of one.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any
from weakref import ReferenceType, WeakKeyDictionary, WeakSet, ref

import torch
from torch import nn
from torch.autograd.graph import saved_tensors_hooks

from memplan.runtime.checkpoint.host import Host, Returning

LEAST_BYTES = 1024
"""Smaller storages stay (torchtune, training/_activation_offloading.py: ``min_offload_size``)."""

_WRITTEN_TO = "one of the variables needed for gradient computation has been modified by an inplace operation"


class BackwardOrder:
    """The order in which blocks that are fetched ahead come in backward: the reverse of their forwards.

    It belongs to a plan in force, and to its process.
    """

    def __init__(self) -> None:
        self._latest: ReferenceType[_Saved] | None = None

    def __reduce__(self) -> tuple[Any, ...]:
        """A copy of the model starts anew."""
        return BackwardOrder, ()

    def append(self, block: "_Saved") -> None:
        """Put what a forward has saved behind that of all forwards before it."""
        block.next, self._latest = self._latest, ref(block)


@contextmanager
def offloading(module: nn.Module, host: Host, order: BackwardOrder | None = None) -> Iterator[None]:
    """Move away what autograd saves within this context.

    The module's parameters and buffers stay where they are, as do views of them. ``order`` is that of this forward
    among those that are fetched ahead; None: nothing is fetched ahead.
    """
    staying: WeakSet[torch.UntypedStorage] = WeakSet()
    for tensor in (*module.parameters(), *module.buffers()):
        if _is_plain(tensor):
            staying.add(tensor.untyped_storage())
    block = _Saved(host, staying)
    with saved_tensors_hooks(block.pack, _unpack):
        yield
    block.move()
    if order is not None and block.storages:
        order.append(block)


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


@dataclass(slots=True, weakref_slot=True, eq=False)
class _Saved:
    """Everything that one forward of a block saves."""

    host: Host
    staying: WeakSet[torch.UntypedStorage]
    moved: WeakKeyDictionary[torch.UntypedStorage, _Storage] = field(default_factory=WeakKeyDictionary)
    """By the storage on the device, as long as anything else holds it."""
    storages: list[_Storage] = field(default_factory=list)
    waiting: list[tuple[_Storage, torch.Tensor]] = field(default_factory=list)
    """What is saved and not moved yet."""
    is_fetched: bool = False
    """Has everything been on its way back once?"""
    returning: list[tuple[_Storage, Returning]] = field(default_factory=list)
    """What is on its way back, and not waited for yet."""
    next: "ReferenceType[_Saved] | None" = None
    """What is fetched ahead while this block's backward runs; dead as soon as its own backward is over."""

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

    def fetch(self) -> None:
        """Begin to copy everything back; what was saved last is needed first."""
        self.move()
        self.is_fetched = True
        entries = [entry for entry in reversed(self.storages) if entry.taken is not None]
        self.returning = [(entry, self.host.give(entry.taken)) for entry in entries]

    def give_back(self, needed: _Storage) -> None:
        """Bring everything back, and begin to fetch the next block.

        Whoever asks again, over a retained graph or twice for one tensor, gets no more than it asks for.
        """
        if not self.is_fetched:
            self.fetch()
        elif not self.returning and needed.taken is not None:
            self.returning = [(needed, self.host.give(needed.taken))]
        following = None if self.next is None else self.next()
        if following is not None and not following.is_fetched:
            following.fetch()
        arriving, self.returning = self.returning, []
        for entry, copy in arriving:
            entry.flat, entry.unused = copy.arrived(), entry.saved

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
