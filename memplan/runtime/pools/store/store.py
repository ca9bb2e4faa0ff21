"""A store of items: in memory up to a limit, the oldest on disk beyond it."""

from collections import deque
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from threading import Lock
from types import TracebackType
from typing import Self

import torch

from memplan.errors import UsageError, several
from memplan.runtime.pools.store.ahead import ahead
from memplan.runtime.pools.store.codec import Codec, Found, Item, ItemLayout
from memplan.runtime.pools.store.records import SpillError, StoreStatistics
from memplan.runtime.pools.store.spill import ByteSpan, Spill
from memplan.units import GIB, Bytes, format_bytes, parse_size


@dataclass(frozen=True, slots=True)
class _Entry:
    layout: ItemLayout
    where: bytes | ByteSpan

    @property
    def nbytes(self) -> int:
        return len(self.where) if isinstance(self.where, bytes) else self.where.nbytes


class BufferStore:
    """Items of tensors, as a replay buffer keeps them. Thread-safe: any number of readers beside any number of writers.

    ::

        with BufferStore(limit="4GiB", capacity=100_000, compression=3) as store:
            store.append({"state": state, "reward": reward})
            batch = store.sample(64)
            for item in store.iterate(): ...

    What is read is a copy on the CPU, equal bit for bit, contiguous, without gradient. Items on disk are in files
    without names: nothing is left of them when the process ends, however it does. Not to be used in a forked process.

    Args:
        limit: Bytes of encoded items in memory; beyond it the oldest go to disk.
        capacity: Most items; the oldest make room. None: no limit.
        compression: Level of zstandard; None: items are kept as they are.
        directory: Where files are; None: the system's temporary folder, which may be memory itself (``tmpfs``).

    Raises:
        UsageError: An argument is out of its range, or zstandard is not installed.
    """

    def __init__(
        self,
        *,
        limit: int | str = GIB,
        capacity: int | None = None,
        compression: int | None = None,
        directory: Path | str | None = None,
    ) -> None:
        self._limit = _limit(limit)
        problems = [
            *([] if self._limit >= 0 else [f"limit: {limit!r} is no size; write for example 4GiB, or bytes"]),
            *([] if capacity is None or capacity > 0 else [f"capacity: {capacity} is less than 1"]),
            *([] if directory is None or Path(directory).is_dir() else [f"directory: {directory} is no folder"]),
        ]
        if problems:
            raise several(problems)
        self._capacity, self._codec = capacity, Codec(compression)
        self._spill = Spill(None if directory is None else Path(directory))
        self._writing = Lock()
        self._lock = Lock()
        """Of what follows; held for microseconds, never while anything is encoded, written or read."""
        self._entries: dict[int, _Entry] = {}
        self._in_memory: deque[int] = deque()
        self._first = self._next = self._memory_bytes = self._disk_bytes = self._tensor_bytes = self._spilled = 0
        self._is_closed = False

    def append(self, item: Item) -> None:
        """Add an item.

        Args:
            item: A tensor, or names and tensors; of any device, type and shape.

        Raises:
            SpillError: The disk took nothing more; all earlier items are still there, this one is not added.
            UsageError: The item has no plain memory, or the store is closed.
        """
        layout, payload = self._codec.encode(item)
        with self._writing:
            self._open()
            try:
                self._make_room(len(payload))
                is_large = len(payload) > self._limit
                entry = _Entry(layout, self._spill.write(payload) if is_large else payload)
            except OSError as error:
                raise SpillError(
                    f"{format_bytes(len(payload))} cannot be kept: the disk says {error}",
                    hint=f"the {len(self)} items before are still there; make room, or choose another directory",
                ) from error
            self._add(entry)

    def extend(self, items: Iterable[Item]) -> None:
        """Add items, one after the other."""
        for item in items:
            self.append(item)

    def get(self, index: int) -> Found:
        """Read an item.

        Args:
            index: 0 is the oldest that is there, -1 the newest.

        Raises:
            IndexError: There are not so many.
            UsageError: The store is closed.
        """
        with self._lock:
            self._open()
            if not -len(self._entries) <= index < len(self._entries):
                raise IndexError(f"item {index} of {len(self._entries)}")
            entry = self._entries[self._first + index % len(self._entries)]
        # Outside of the lock: the entry's bytes stay, whatever becomes of it.
        payload = entry.where if isinstance(entry.where, bytes) else entry.where.read()
        return self._codec.decode(entry.layout, payload)

    def sample(self, count: int, generator: torch.Generator | None = None) -> list[Found]:
        """Read items drawn with equal chances, with replacement.

        Raises:
            UsageError: The store is empty, or closed.
        """
        if not len(self):
            raise UsageError("nothing can be drawn from an empty store")
        return [self.get(index) for index in torch.randint(len(self), (count,), generator=generator).tolist()]

    def iterate(self, order: Iterable[int] | None = None, *, prefetch: int = 2) -> Iterator[Found]:
        """Read items one after the other, the next ones loaded by a thread meanwhile.

        Args:
            order: Their indices; None: all that are there now, the oldest first.
            prefetch: Items that are loaded and wait, at most.
        """
        if prefetch < 1:
            raise UsageError(f"prefetch: {prefetch} is less than 1")
        return ahead(self.get, range(len(self)) if order is None else order, prefetch)

    def statistics(self) -> StoreStatistics:
        """The accounts."""
        with self._lock:
            return StoreStatistics(
                items=len(self._entries),
                tensor_bytes=Bytes(self._tensor_bytes),
                memory_bytes=Bytes(self._memory_bytes),
                disk_bytes=Bytes(self._disk_bytes),
                file_bytes=Bytes(self._spill.file_bytes),
                appended=self._next,
                spilled=self._spilled,
            )

    def close(self) -> None:
        """Forget everything; files go. A second time does nothing."""
        with self._writing, self._lock:
            self._is_closed = True
            self._entries.clear()
            self._in_memory.clear()
            self._memory_bytes = self._disk_bytes = self._tensor_bytes = 0
            self._spill.close()

    def __len__(self) -> int:
        return len(self._entries)

    def __getitem__(self, index: int) -> Found:
        """The same as ``get``."""
        return self.get(index)

    def __iter__(self) -> Iterator[Found]:
        """The same as ``iterate``."""
        return self.iterate()

    def __enter__(self) -> Self:
        """The store."""
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Close."""
        self.close()

    def _open(self) -> None:
        if self._is_closed:
            raise UsageError("the store is closed")

    def _make_room(self, nbytes: int) -> None:
        """Write the oldest items to disk until so much more has room in memory; each is always in one place."""
        while self._in_memory and nbytes <= self._limit < self._memory_bytes + nbytes:
            number = self._in_memory[0]
            entry = self._entries[number]
            if isinstance(entry.where, bytes):
                span = self._spill.write(entry.where)
                with self._lock:
                    self._entries[number] = _Entry(entry.layout, span)
                    self._memory_bytes -= entry.nbytes
                    self._disk_bytes += entry.nbytes
                    self._spilled += 1
            self._in_memory.popleft()

    def _add(self, entry: _Entry) -> None:
        with self._lock:
            self._entries[self._next] = entry
            self._tensor_bytes += entry.layout.nbytes
            if isinstance(entry.where, bytes):
                self._in_memory.append(self._next)
                self._memory_bytes += entry.nbytes
            else:
                self._disk_bytes += entry.nbytes
                self._spilled += 1
            self._next += 1
            if self._capacity is not None and len(self._entries) > self._capacity:
                self._forget_oldest()

    def _forget_oldest(self) -> None:
        entry = self._entries.pop(self._first)
        self._first += 1
        self._tensor_bytes -= entry.layout.nbytes
        if isinstance(entry.where, bytes):
            self._in_memory.popleft()
            self._memory_bytes -= entry.nbytes
        else:
            self._disk_bytes -= entry.nbytes
            self._spill.free(entry.where)


def _limit(limit: int | str) -> int:
    """In bytes; -1 for what is no size."""
    if isinstance(limit, str):
        try:
            return parse_size(limit)
        except ValueError:
            return -1
    return limit
