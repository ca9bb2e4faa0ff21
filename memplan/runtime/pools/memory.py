"""Where a pool's memory comes from, and tensors in it: the one place that asks the system and PyTorch."""

import mmap
from contextlib import suppress
from typing import Protocol

import torch

from memplan.seam.tensors import storage_Use_Count
from memplan.units import MIB

HUGE_PAGE = 2 * MIB
"""Bytes of a transparent huge page (x86-64 and arm64 with pages of 4 KiB). Where a program must ask for them
(``transparent_hugepage/enabled`` is ``madvise``), ``malloc`` does not: the pool's memory is faster to write then."""


class Memory(Protocol):
    """What a pool takes its memory from."""

    is_kept: bool
    """Does the pool keep what is given back? Not where PyTorch does so itself."""

    def whole(self, nbytes: int, old: mmap.mmap | None) -> tuple[torch.UntypedStorage, mmap.mmap | None]:
        """Memory of its own, and where it lies; ``old`` is no longer of use to anybody else."""

    def slab(self, nbytes: int) -> mmap.mmap:
        """Memory to cut pieces of; only where it is kept."""

    def piece(self, slab: mmap.mmap, offset: int, nbytes: int) -> torch.UntypedStorage:
        """A piece as a storage of its own, which keeps the slab."""


class HostMemory:
    """Pageable memory of the host, straight from the system.

    What is given back is the system's at once. PyTorch asks ``malloc``, which keeps much of what it is given back: the
    pool would say that it holds less than the process does.
    """

    is_kept = True

    def whole(self, nbytes: int, old: mmap.mmap | None) -> tuple[torch.UntypedStorage, mmap.mmap | None]:
        """A storage that cannot be resized, so that its size stays the one in the accounts.

        The pages of ``old`` are moved there (``mremap``), for a new page must be cleared by the system first.
        """
        found = old if old is not None and _is_resized(old, nbytes) else self.slab(nbytes)
        return self.piece(found, 0, nbytes), found

    def slab(self, nbytes: int) -> mmap.mmap:
        """Whole pages, zero until they are written; unmapped when the last storage in it goes."""
        if not hasattr(mmap, "MAP_PRIVATE"):
            return mmap.mmap(-1, nbytes)
        # As ``malloc``'s: a forked process has its own copy.
        found = mmap.mmap(-1, nbytes, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
        if nbytes >= HUGE_PAGE and hasattr(mmap, "MADV_HUGEPAGE"):
            with suppress(OSError):  # A kernel that has none.
                found.madvise(mmap.MADV_HUGEPAGE)
        return found

    def piece(self, slab: mmap.mmap, offset: int, nbytes: int) -> torch.UntypedStorage:
        """A piece: PyTorch counts who has a tensor in it."""
        return torch.frombuffer(slab, dtype=torch.uint8, count=nbytes, offset=offset).untyped_storage()


class DeviceMemory(HostMemory):
    """Memory of a device whose allocator caches better than this pool could: nothing is kept, nothing shares."""

    is_kept = False

    def __init__(self, device: torch.device) -> None:
        self._device = device

    def whole(self, nbytes: int, old: mmap.mmap | None) -> tuple[torch.UntypedStorage, mmap.mmap | None]:  # noqa: ARG002
        """A storage of the caching allocator."""
        return torch.empty(nbytes, dtype=torch.uint8, device=self._device).untyped_storage(), None


def _is_resized(memory: mmap.mmap, nbytes: int) -> bool:
    """Not where the system has no ``mremap``, or no room, or somebody has a storage in it after all."""
    try:
        memory.resize(nbytes)
    except (BufferError, OSError, SystemError, ValueError):
        return False
    return True


def memory_of(device: torch.device) -> Memory:
    """Where tensors of a device get their memory."""
    return HostMemory() if device.type == "cpu" else DeviceMemory(device)


def users(storage: torch.UntypedStorage) -> int:
    """How many hold a storage: tensors, arrays of NumPy over them, graphs of autograd; and the handle at hand."""
    # What CUDA graph trees ask, too (torch/_inductor/cudagraph_trees.py); there is no public way.
    count: int = storage_Use_Count(storage._cdata)  # noqa: SLF001
    return count


def tensor_in(storage: torch.UntypedStorage, shape: tuple[int, ...], dtype: torch.dtype) -> torch.Tensor:
    """A contiguous tensor from the storage's first byte on; no view of another, so that no graph is shared."""
    return torch.empty(0, dtype=dtype, device=storage.device).set_(storage, 0, shape)  # type: ignore[call-overload,no-any-return]
