"""Copies between a device and buffers of the host, and when they are done."""

from typing import Protocol

import torch

from memplan.errors import UsageError


class CopyEvent(Protocol):
    """The end of a copy; ``torch.cuda.Event`` is one."""

    def query(self) -> bool:
        """Is it done?"""

    def synchronize(self) -> None:
        """Wait until it is."""


class Copier(Protocol):
    """How buffers are made and filled."""

    device: torch.device
    """Where tensors come from."""
    is_pinned: bool
    """Are the buffers page-locked, so that copies go on beside the program?"""

    def buffer(self, nbytes: int) -> torch.Tensor:
        """Memory of the host, ``uint8``."""

    def start(self, target: torch.Tensor, source: torch.Tensor) -> CopyEvent:
        """Copy; what the device is told after this sees the result."""


class Done:
    """A copy that was done when its call returned."""

    def query(self) -> bool:
        """It is."""
        return True

    def synchronize(self) -> None:
        """Nothing to wait for."""


class PageableCopier:
    """Plain copies of pageable memory: there is no CUDA device."""

    is_pinned = False

    def __init__(self, device: torch.device) -> None:
        self.device = device

    def buffer(self, nbytes: int) -> torch.Tensor:
        """Pageable memory."""
        return torch.empty(nbytes, dtype=torch.uint8)

    def start(self, target: torch.Tensor, source: torch.Tensor) -> CopyEvent:
        """Copy now."""
        target.copy_(source)
        return Done()


class CudaCopier:
    """Copies on a stream of their own, between a CUDA device and pinned memory."""

    is_pinned = True

    def __init__(self, device: torch.device) -> None:
        self.device = device
        self._stream = torch.cuda.Stream(device)  # type: ignore[no-untyped-call]

    def buffer(self, nbytes: int) -> torch.Tensor:
        """Pinned memory (``cudaHostAlloc``: milliseconds)."""
        return torch.empty(nbytes, dtype=torch.uint8, pin_memory=True)

    def start(self, target: torch.Tensor, source: torch.Tensor) -> CopyEvent:
        """Copy after what the present stream was told; it goes on when the copy to the device is done."""
        current = torch.cuda.current_stream(self.device)
        self._stream.wait_stream(current)
        event = torch.cuda.Event()  # type: ignore[no-untyped-call]
        with torch.cuda.stream(self._stream):
            target.copy_(source, non_blocking=True)
            event.record(self._stream)
        on_device = target if target.is_cuda else source
        # Its memory must not be another tensor's before the copy is done.
        on_device.record_stream(self._stream)
        if target.is_cuda:
            current.wait_event(event)
        return event


def copier_of(device: torch.device | str | None) -> Copier:
    """The copier of a device; of the CUDA device in use, where none is named and there is one.

    Raises:
        UsageError: The device is neither a CUDA device that is there nor the CPU.
    """
    has_cuda = torch.cuda.is_available()
    found = torch.device(("cuda" if has_cuda else "cpu") if device is None else device)
    if found.type == "cpu":
        return PageableCopier(found)
    if found.type != "cuda" or not has_cuda:
        raise UsageError(f"no buffers can be pinned for {found}", hint="name a CUDA device of this machine, or cpu")
    return CudaCopier(found if ":" in str(found) else torch.device("cuda", torch.cuda.current_device()))
