"""A ring of pinned buffers through which tensors leave a device and come back."""

import logging
from collections import deque
from dataclasses import dataclass
from threading import Lock
from types import TracebackType
from typing import Self

import torch

from memplan.errors import UsageError, several
from memplan.runtime.pools.copiers import Copier, CopyEvent, Done, copier_of
from memplan.runtime.pools.memory import tensor_in, users
from memplan.runtime.pools.records import PoolFullError
from memplan.units import MIB, Bytes, format_bytes

_log = logging.getLogger("memplan")


@dataclass(frozen=True, slots=True, kw_only=True)
class StagingStatistics:
    """What a ring has done."""

    buffers: int
    """Buffers of the ring."""
    buffer_bytes: Bytes
    """Bytes of each."""
    is_pinned: bool
    """Are they page-locked?"""
    taken: int
    """Buffers that hold a tensor."""
    out: int
    """Tensors copied to the host."""
    out_bytes: Bytes
    """Their bytes."""
    back: int
    """Tensors copied back."""
    back_bytes: Bytes
    """Their bytes."""
    waits: int
    """Times that a buffer was used again and its last copy was not done yet."""
    leaks: int
    """Handles that were dropped without giving back."""


@dataclass(slots=True, eq=False)
class _Buffer:
    storage: torch.UntypedStorage
    idle: int
    event: CopyEvent


class Staged:
    """A tensor that is in a buffer of the host, or on its way there. For one thread at a time."""

    def __init__(self, pool: "StagingPool", buffer: _Buffer, tensor: torch.Tensor) -> None:
        self._pool = pool
        self._buffer: _Buffer | None = buffer
        self.shape, self.dtype, self.device = tuple(tensor.shape), tensor.dtype, tensor.device

    def host(self) -> torch.Tensor:
        """The tensor in the buffer, when its copy is done; for as long as this handle.

        Raises:
            UsageError: It was given back.
        """
        buffer = self._taken()
        buffer.event.synchronize()
        return tensor_in(buffer.storage, self.shape, self.dtype)

    def bring_back(self) -> torch.Tensor:
        """A copy on the device that it came from, and the buffer back in the ring.

        Raises:
            UsageError: It was given back.
        """
        buffer = self._taken()
        target = torch.empty(self.shape, dtype=self.dtype, device=self.device)
        # Both copies are told to one stream, so that the second waits for the first.
        event = self._pool.copier.start(target, tensor_in(buffer.storage, self.shape, self.dtype))
        self._pool.copied_back(buffer, event, target.nbytes)
        self._buffer = None
        return target

    def give_back(self) -> None:
        """Give the buffer back without copying; a second time does nothing."""
        buffer, self._buffer = self._buffer, None
        if buffer is not None:
            self._pool.free(buffer)

    def _taken(self) -> _Buffer:
        if self._buffer is None:
            raise UsageError("this tensor's buffer was given back to the ring")
        return self._buffer

    def __enter__(self) -> Self:
        """The handle."""
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Give back."""
        self.give_back()

    def __del__(self) -> None:
        """Leave the buffer to the ring's next call."""
        buffer: _Buffer | None = getattr(self, "_buffer", None)
        if buffer is not None:
            self._pool.dropped.append(buffer)


class StagingPool:
    """A ring of pinned buffers of one size. Thread-safe. A buffer is used again when its last copy is done.

    ::

        pool = StagingPool(buffers=4, buffer_bytes=64 * MIB)
        staged = pool.offload(activation); del activation      # device → host, on a stream of its own
        activation = staged.bring_back()                       # host → device

    Without CUDA the buffers are pageable, which is logged and stands in ``statistics().is_pinned``; copies then wait.

    Args:
        buffers: How many.
        buffer_bytes: Of each: of the largest tensor.
        device: Where tensors come from; None: the CUDA device in use, else the CPU.
        copier: How to copy; None: by the device.

    Raises:
        UsageError: An argument is out of its range; names all of them.
    """

    def __init__(
        self,
        *,
        buffers: int = 4,
        buffer_bytes: int = 64 * MIB,
        device: torch.device | str | None = None,
        copier: Copier | None = None,
    ) -> None:
        problems = [
            f"{name}: {value} is less than 1"
            for name, value in (("buffers", buffers), ("buffer_bytes", buffer_bytes))
            if value < 1
        ]
        if problems:
            raise several(problems)
        self.copier = copier or copier_of(device)
        """How it copies."""
        if not self.copier.is_pinned:
            _log.info("no CUDA device: staging buffers are pageable, and copies wait")
        self.dropped: deque[_Buffer] = deque()
        """Of handles that were garbage."""
        self._lock = Lock()
        self._nbytes, self._number = buffer_bytes, buffers
        self._ring = deque(_buffer(self.copier, buffer_bytes) for _ in range(buffers))
        self._counts = dict.fromkeys(("out", "out_bytes", "back", "back_bytes", "waits", "leaks"), 0)

    def offload(self, tensor: torch.Tensor) -> Staged:
        """Begin to copy a tensor to the host. It may be dropped at once; nobody may write to it before the copy ends.

        Args:
            tensor: Strided, of at most a buffer's bytes; its values are kept, contiguous.

        Raises:
            PoolFullError: All buffers hold tensors.
            UsageError: It does not fit into a buffer, or has no plain memory.
        """
        nbytes = tensor.numel() * tensor.element_size()
        if tensor.layout is not torch.strided or nbytes > self._nbytes:
            raise UsageError(
                f"a {tensor.layout} tensor of {format_bytes(nbytes)} does not go into a buffer of "
                f"{format_bytes(self._nbytes)}",
                hint="StagingPool(buffer_bytes=…) as large as the largest tensor, or offload parts",
            )
        buffer = self._take()
        try:
            target = tensor_in(buffer.storage, tuple(tensor.shape), tensor.dtype)
            buffer.event = self.copier.start(target, tensor.detach())
        except BaseException:
            self.free(buffer)
            raise
        with self._lock:
            self._counts["out"] += 1
            self._counts["out_bytes"] += nbytes
        return Staged(self, buffer, tensor)

    def statistics(self) -> StagingStatistics:
        """What it has done so far."""
        with self._lock:
            self._tidy()
            counts = self._counts
            return StagingStatistics(
                buffers=self._number,
                buffer_bytes=Bytes(self._nbytes),
                is_pinned=self.copier.is_pinned,
                taken=self._number - len(self._ring),
                out=counts["out"],
                out_bytes=Bytes(counts["out_bytes"]),
                back=counts["back"],
                back_bytes=Bytes(counts["back_bytes"]),
                waits=counts["waits"],
                leaks=counts["leaks"],
            )

    def free(self, buffer: _Buffer) -> None:
        """A handle's buffer is the ring's again."""
        with self._lock:
            self._ring.append(buffer)

    def copied_back(self, buffer: _Buffer, event: CopyEvent, nbytes: int) -> None:
        """The same, when a copy of it is done."""
        with self._lock:
            buffer.event = event
            self._ring.append(buffer)
            self._counts["back"] += 1
            self._counts["back_bytes"] += nbytes

    def _take(self) -> _Buffer:
        """The buffer that came back first, of those that no tensor is left in; its last copy is done."""
        with self._lock:
            self._tidy()
            free = [each for each in self._ring if users(each.storage) <= each.idle]
            if not free:
                raise PoolFullError(
                    f"all {self._number} buffers hold tensors", hint="bring some back first, or StagingPool(buffers=…)"
                )
            found = next((each for each in free if each.event.query()), free[0])
            self._ring.remove(found)
            is_done = found.event.query()
            self._counts["waits"] += not is_done
        if not is_done:
            found.event.synchronize()
        return found

    def _tidy(self) -> None:
        while self.dropped:
            self._ring.append(self.dropped.popleft())
            self._counts["leaks"] += 1


def _buffer(copier: Copier, nbytes: int) -> _Buffer:
    storage = copier.buffer(nbytes).untyped_storage()
    return _Buffer(storage=storage, idle=users(storage), event=Done())
