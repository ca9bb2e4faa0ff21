"""Pinned host memory on a node of choice. Where that cannot be had: the next best, and why."""

import ctypes
import math
import mmap
import os
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from threading import Thread

import torch

from memplan.errors import UsageError
from memplan.runtime.meters.cuda import device_count, has_context
from memplan.runtime.numa import syscalls
from memplan.runtime.numa.system_files import SystemFiles


@dataclass(frozen=True, slots=True, kw_only=True)
class PinnedTensor:
    """Memory and how it was had."""

    tensor: torch.Tensor
    """Zeros. The memory goes back when nothing refers to its storage any more."""
    node: int | None
    """The node asked for; None: wherever the calling thread runs."""
    bound: bool
    """Is it bound to that node (mbind)? Otherwise it was first touched there, which nearly always does."""
    registered: bool
    """Is it page-locked for CUDA?"""
    share: float | None
    """Of its pages, how many lie on the node, as the kernel tells (move_pages); None: not asked or not told."""
    reasons: tuple[str, ...]
    """What could not be had, and why; empty: all was."""


class _Region(mmap.mmap):
    """Anonymous memory that is given back to CUDA before it is unmapped."""

    release: Callable[[], None] | None = None

    def __del__(self) -> None:
        if self.release is not None:
            self.release()


def pinned_empty(
    shape: tuple[int, ...], *, dtype: torch.dtype = torch.float32, node: int | None = None
) -> PinnedTensor:
    """Allocate page-locked host memory on a node (``RankPlacement.memory_node``).

    mmap, mbind, first touch by a thread on the node's CPUs, cudaHostRegister. Not for many small tensors: each takes
    whole pages, and registering takes longer than copying.

    Args:
        shape: Of the tensor.
        dtype: Of its elements.
        node: Where; None: wherever the calling thread runs.

    Raises:
        UsageError: There is no such node, or the shape is none.
        MemoryError: There is no such amount of memory.
    """
    if any(size < 0 for size in shape):
        raise UsageError(f"a tensor cannot have the shape {tuple(shape)}")
    size = math.prod(shape) * dtype.itemsize
    cpus = () if node is None else _cpus_of(node)
    if size == 0 or not hasattr(mmap, "MAP_PRIVATE"):
        return _plain(shape, dtype, node, "" if size == 0 else "this system has no private mappings")
    region = _mapped(size)
    tensor = torch.frombuffer(region, dtype=dtype, count=math.prod(shape)).reshape(shape)
    reasons: list[str] = []
    bound = node is not None and _bind(tensor.data_ptr(), len(region), node, reasons)
    _touch(tensor.data_ptr(), size, cpus)
    registered = _register(region, tensor.data_ptr(), len(region), reasons)
    share = None if node is None else _share(tensor.data_ptr(), size, node, reasons)
    return PinnedTensor(
        tensor=tensor, node=node, bound=bound, registered=registered, share=share, reasons=tuple(reasons)
    )


def _mapped(size: int) -> _Region:
    whole = -(-size // mmap.PAGESIZE) * mmap.PAGESIZE
    try:
        return _Region(-1, whole, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    except OSError as error:
        raise MemoryError(f"{size} B of host memory: {error.strerror}") from error


def _cpus_of(node: int) -> tuple[int, ...]:
    files = SystemFiles()
    folder = f"sys/devices/system/node/node{node}"
    if not files.names(folder) and node:  # A kernel without NUMA has node 0 and no folder.
        raise UsageError(f"there is no node {node}", hint="memplan numa shows those that there are")
    return files.list(f"{folder}/cpulist")


def _plain(shape: tuple[int, ...], dtype: torch.dtype, node: int | None, reason: str) -> PinnedTensor:
    pinned = torch.cuda.is_available()
    tensor = torch.zeros(shape, dtype=dtype, pin_memory=pinned)
    return PinnedTensor(
        tensor=tensor, node=node, bound=False, registered=pinned, share=None, reasons=(reason,) if reason else ()
    )


def _bind(address: int, size: int, node: int, reasons: list[str]) -> bool:
    try:
        syscalls.bind_range(address, size, node)
    except OSError as error:
        reasons.append(f"not bound to node {node}, only touched there first: {error.strerror}")
        return False
    return True


def _touch(address: int, size: int, cpus: tuple[int, ...]) -> None:
    """Fill with zeros, on the node's CPUs: a page lies where the thread runs that first writes to it."""

    def fill() -> None:
        if cpus:
            with suppress(OSError, AttributeError):  # None of them is allowed: then from here.
                os.sched_setaffinity(0, set(cpus))
        ctypes.memset(address, 0, size)

    thread = Thread(target=fill)
    thread.start()
    thread.join()


def _register(region: _Region, address: int, size: int, reasons: list[str]) -> bool:
    if not torch.cuda.is_available():
        reasons.append("not page-locked: there is no CUDA device")
        return False
    runtime = torch.cuda.cudart()  # type: ignore[no-untyped-call]
    code = int(runtime.cudaHostRegister(address, size, 0))
    if code:
        reasons.append(f"not page-locked: cudaHostRegister answers {code}")
        return False

    def release() -> None:
        # PyTorch waits for copies of memory that it pinned itself; of this it does not know.
        for index in range(device_count()):
            if has_context(index):
                with suppress(RuntimeError):  # A device that has failed copies nothing any more.
                    torch.cuda.synchronize(index)
        runtime.cudaHostUnregister(address)

    region.release = release
    return True


def _share(address: int, size: int, node: int, reasons: list[str]) -> float | None:
    try:
        nodes = syscalls.nodes_of_pages(address, size)
    except OSError as error:
        reasons.append(f"where the pages lie is not told: {error.strerror}")
        return None
    return sum(found == node for found in nodes) / len(nodes)
