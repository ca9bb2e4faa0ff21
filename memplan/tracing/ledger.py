"""The ledger of storages: who was allocated when, and the moment at which eager PyTorch frees it.

A storage's Python object lives exactly as long as its C++ one, so a weak reference on it tells the moment of the free.
Several storages may stand for one allocation: where a dispatch mode makes autograd go out of place, the new storage is
*joined* to the allocation that eager PyTorch would have overwritten, and the allocation dies with the last of them.
"""

import weakref
from contextlib import AbstractContextManager
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch

from memplan.seam.replace import Replacement, attribute, replaced
from memplan.tracing.records import Event, Place, Role, Storage
from memplan.units import Bytes, OpIndex, StorageId

HELD_BACK = (
    "blocks that record_stream shares come back where the host waits for the device, or at the end of the step; at the "
    "lower end of the interval as soon as they are freed"
)
"""An assumption: how far the device lags behind the host depends on the run."""


@dataclass(slots=True)
class Entry:
    """One allocation while the trace runs."""

    nbytes: int
    place: Place
    role: Role
    birth: int
    name: str
    stream: int
    holders: int = 1
    """Live storages that stand for this allocation."""
    most: int | None = None
    """Most bytes that it may take, where only a closed library knows."""
    spare: bool = False
    """Does that library do with less where memory is short?"""
    shared: bool = False
    """Was another stream recorded to use it (``record_stream``)?"""
    pending: int = 0
    """Events between its free and the moment at which all streams have surely caught up with it."""


class Ledger:
    """Allocations and frees in order. Storages are keyed by address of their C++ object while they live."""

    def __init__(self) -> None:
        self.entries: list[Entry] = []
        self.events: list[Event] = []
        self.op = -1
        """Index of the op now running, or last run."""
        self.stream = 0
        """CUDA stream that allocations are made on."""
        self._pending: list[tuple[StorageId, int]] = []
        # Shared ones that are freed and that the host has not waited for, each with the index of its free.
        self._ids: dict[int, StorageId] = {}
        self._references: dict[int, weakref.ref[torch.UntypedStorage]] = {}

    def find(self, storage: torch.UntypedStorage) -> StorageId | None:
        """The allocation that a live storage stands for."""
        return self._ids.get(storage._cdata)

    def allocate(
        self,
        storage: torch.UntypedStorage,
        *,
        place: Place,
        role: Role = "intermediate",
        name: str = "",
        borrowed: bool = False,
    ) -> StorageId:
        """Enter a storage not seen before as a new allocation of its size, or of none where torch did not allocate."""
        identity = self._enter(0 if borrowed else storage.nbytes(), place, role, name)
        self._watch(storage, identity)
        return identity

    def join(self, storage: torch.UntypedStorage, identity: StorageId) -> None:
        """Let a new storage stand for an existing allocation."""
        self.entries[identity].holders += 1
        self._watch(storage, identity)

    def move(self, storage: torch.UntypedStorage, *, place: Place, role: Role, name: str) -> StorageId:
        """Copy a live storage to another place: a new allocation there, the old one freed."""
        old = self._ids[storage._cdata]
        new = self._enter(storage.nbytes(), place, role, name)
        self._ids[storage._cdata] = new
        self._references[storage._cdata] = weakref.ref(storage, partial(self._died, storage._cdata))
        self._release(old)
        return new

    def watching_resizes(self) -> AbstractContextManager[None]:
        """Follow ``UntypedStorage.resize_``, which no dispatch mode sees (FSDP frees and regrows parameters by it)."""
        resize = attribute("torch.UntypedStorage.resize_")

        def resize_(storage: torch.UntypedStorage, size: int) -> Any:
            result = resize(storage, size)
            identity = self.find(storage)
            if identity is not None and self.entries[identity].nbytes != storage.nbytes():
                entry = self.entries[identity]
                self.move(storage, place=entry.place, role=entry.role, name=entry.name)
            return result

        return replaced((Replacement("torch.UntypedStorage.resize_", resize_),))

    def scratch(
        self, nbytes: int, *, role: Role = "scratch", name: str = "", most: int | None = None, spare: bool = False
    ) -> StorageId:
        """Enter an allocation without a storage: a kernel's own."""
        identity = self._enter(nbytes, "device", role, name)
        entry = self.entries[identity]
        entry.most, entry.spare = most, spare
        return identity

    def repeat(self, entry: Entry) -> StorageId:
        """Enter an allocation like an earlier one, without a storage."""
        return self._enter(entry.nbytes, entry.place, entry.role, entry.name)

    def release_scratch(self, identity: StorageId) -> None:
        """Free what ``scratch`` or ``repeat`` entered."""
        self._release(identity)

    def record_stream(self, storage: torch.UntypedStorage, stream: int) -> None:
        """Note that a stream uses a live storage, too; its own needs no waiting for."""
        identity = self.find(storage)
        if identity is not None and self.entries[identity].stream != stream:
            self.entries[identity].shared = True

    def moment(self) -> int:
        """Return what ``wait`` needs to know of now."""
        return len(self.events)

    def wait(self, moment: int | None = None) -> None:
        """Let the host wait until the device has done what it was given before a moment, or until now."""
        reached = len(self.events) if moment is None else moment
        for identity, freed in self._pending:
            if freed < reached:
                self.entries[identity].pending = len(self.events) - freed - 1
        self._pending = [(identity, freed) for identity, freed in self._pending if freed >= reached]

    def live_sizes(self) -> list[tuple[int, Place, int]]:
        """Size, place and stream of what lives now, in order of size: equal lists mean that a step left no trace."""
        live = (entry for entry in self.entries if entry.holders and entry.nbytes)
        return sorted((entry.nbytes, entry.place, entry.stream) for entry in live)

    def storages(self) -> tuple[Storage, ...]:
        """All allocations so far, as records."""
        return tuple(
            Storage(
                id=StorageId(index),
                nbytes=Bytes(entry.nbytes),
                place=entry.place,
                role=entry.role,
                birth=OpIndex(entry.birth),
                name=entry.name,
                stream=entry.stream,
                most_bytes=None if entry.most is None else Bytes(entry.most),
                spare=entry.spare,
                pending=entry.pending,
            )
            for index, entry in enumerate(self.entries)
        )

    def _enter(self, nbytes: int, place: Place, role: Role, name: str) -> StorageId:
        identity = StorageId(len(self.entries))
        self.entries.append(Entry(nbytes, place, role, max(self.op, 0), name, self.stream))
        self.events.append(Event("alloc", identity, OpIndex(self.op)))
        return identity

    def _watch(self, storage: torch.UntypedStorage, identity: StorageId) -> None:
        key = storage._cdata
        self._ids[key] = identity
        self._references[key] = weakref.ref(storage, partial(self._died, key))

    def _died(self, key: int, _: object) -> None:
        del self._references[key]
        self._release(self._ids.pop(key))

    def _release(self, identity: StorageId) -> None:
        entry = self.entries[identity]
        entry.holders -= 1
        if not entry.holders:
            if entry.shared:
                self._pending.append((identity, len(self.events)))
            self.events.append(Event("free", identity, OpIndex(self.op)))
