"""The host memory in which saved tensors of offloaded blocks wait, and the copies there and back.

::

    computing    forward ──►            backward ──► waits ──► uses what came back
    leaving         └► copies to the host ──► memory free
    returning                              └► takes memory at once, copies back

On CUDA each row is a stream. Memory for what comes back belongs to the stream that computes: the copy begins after what
was computed there before, and whatever is computed with it after the copy, so that it is free where it was taken.
"""

from collections import deque
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any, Protocol

import torch

MOST_LEAVING = 5
"""Storages whose copies to the host may be unfinished (torchtune, training/_activation_offloading.py:
``max_fwd_stash_size``)."""


class Returning:
    """A tensor on its way back, whose memory is taken already.

    ``wait`` makes what its device does next wait for the copy; None: the copy is done.
    """

    def __init__(self, flat: torch.Tensor, wait: Callable[[], object] | None = None) -> None:
        self._flat, self._wait = flat, wait

    def arrived(self) -> torch.Tensor:
        """Wait for the tensor; only then may it be read."""
        wait, self._wait = self._wait, None
        if wait is not None:
            wait()
        return self._flat

    def __del__(self) -> None:
        """Wait here, too: memory that is let go unused must not be handed on while a copy writes to it."""
        self.arrived()


class Host(Protocol):
    """Where saved tensors wait. Tracing puts its own in this place."""

    def take(self, flat: torch.Tensor) -> Any:
        """Copy a one-dimensional tensor away; the copy need not be finished on return."""

    def give(self, taken: Any) -> Returning:
        """Begin to copy it back to the device that it came from, in memory that is taken at once."""


class Leaving:
    """Device memory whose copies to the host are under way, the oldest first."""

    def __init__(self) -> None:
        self._copies: deque[torch.cuda.Event] = deque()

    def add(self, flat: torch.Tensor, stream: torch.cuda.Stream) -> None:
        """Let go of memory that a stream was told to copy; waits for the copy before the last ``MOST_LEAVING``."""
        # The allocator must not hand the memory on before it is copied.
        flat.record_stream(stream)
        self._copies.append(stream.record_event())
        if len(self._copies) > MOST_LEAVING:
            # Python runs ahead of the device: without a wait nothing of a forward would be free for the rest of it.
            self._copies.popleft().synchronize()


class PinnedHost:
    """Pinned memory, which CUDA devices copy to and from by streams of their own.

    A CPU copies back by a thread of its own; other devices copy while everything waits.
    """

    def __init__(self) -> None:
        self._streams: dict[tuple[torch.device, str], torch.cuda.Stream] = {}
        self._leaving = Leaving()
        self._thread: ThreadPoolExecutor | None = None

    def __reduce__(self) -> tuple[Any, ...]:
        """Streams and threads stay with their process."""
        return type(self), ()

    def take(self, flat: torch.Tensor) -> tuple[torch.Tensor, torch.device]:
        """Copy to the host."""
        if not flat.is_cuda:
            return flat.to("cpu", copy=True), flat.device
        stream = self._stream(flat.device, "leaving")
        host = torch.empty(flat.shape, dtype=flat.dtype, pin_memory=True)
        stream.wait_stream(torch.cuda.current_stream(flat.device))
        with torch.cuda.stream(stream):
            host.copy_(flat, non_blocking=True)
        self._leaving.add(flat, stream)
        return host, flat.device

    def give(self, taken: tuple[torch.Tensor, torch.device]) -> Returning:
        """Begin to copy back."""
        host, device = taken
        if device.type not in {"cpu", "cuda"}:
            return Returning(host.to(device, copy=True))
        flat = torch.empty(host.shape, dtype=host.dtype, device=device)
        if device.type == "cpu":
            self._thread = self._thread or ThreadPoolExecutor(max_workers=1, thread_name_prefix="memplan-returning")
            return Returning(flat, self._thread.submit(self._copy_back, flat, host).result)
        computing, returning = torch.cuda.current_stream(device), self._stream(device, "returning")
        # What was computed before may still use the memory, and the copy to the host may be unfinished.
        returning.wait_stream(computing)
        returning.wait_stream(self._stream(device, "leaving"))
        with torch.cuda.stream(returning):
            self._copy_back(flat, host)
        return Returning(flat, partial(_wait_on_device, flat, computing, returning.record_event()))

    def _copy_back(self, flat: torch.Tensor, host: torch.Tensor) -> None:
        flat.copy_(host, non_blocking=True)

    def _stream(self, device: torch.device, way: str) -> torch.cuda.Stream:
        if (device, way) not in self._streams:
            self._streams[device, way] = torch.cuda.Stream(device)  # type: ignore[no-untyped-call]
        return self._streams[device, way]


def _wait_on_device(flat: torch.Tensor, computing: torch.cuda.Stream, copied: torch.cuda.Event) -> None:
    """Let a tensor's device wait for its copy: the stream that has its memory, and the one that uses it."""
    computing.wait_event(copied)
    using = torch.cuda.current_stream(flat.device)
    if using != computing:
        using.wait_event(copied)
        flat.record_stream(using)
