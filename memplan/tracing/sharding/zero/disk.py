"""A disk that holds nothing but sizes: what DeepSpeed's ``aio`` library does for NVMe offload, without doing it."""

from types import SimpleNamespace
from typing import Any

import torch


class Disk:
    """Files that were written, by path."""

    def __init__(self) -> None:
        self._sizes: dict[str, int] = {}

    @property
    def nbytes(self) -> int:
        """Bytes in all files."""
        return sum(self._sizes.values())

    def write(self, path: str, end: int) -> None:
        """A file reaches at least to ``end``."""
        self._sizes[path] = max(end, self._sizes.get(path, 0))

    def library(self, *_: object, **__: object) -> SimpleNamespace:
        """What ``AsyncIOBuilder().load()`` returns."""
        return SimpleNamespace(aio_handle=lambda *_, **__: Handle(self))


class Handle:
    """An ``aio_handle`` (csrc/aio/py_lib): reads and writes are done as soon as they are asked for."""

    def __init__(self, disk: Disk) -> None:
        self._disk = disk
        self._pending = 0
        self._locked: set[int] = set()

    def new_cpu_locked_tensor(self, count: int, example: torch.Tensor) -> torch.Tensor:
        """A page-locked tensor of one dimension, from posix_memalign and mlock: to the byte, past torch's allocator."""
        made = torch.empty(count, dtype=example.dtype, device="cpu")
        self._locked.add(made.untyped_storage()._cdata)
        return made

    def free_cpu_locked_tensor(self, tensor: torch.Tensor) -> bool:
        """It is no longer locked."""
        self._locked.discard(tensor.untyped_storage()._cdata)
        return True

    def is_pinned(self, tensor: torch.Tensor) -> bool:
        """Is it, or what it is a view of, locked?"""
        return tensor.untyped_storage()._cdata in self._locked or tensor.is_pinned()

    def async_pwrite(self, buffer: torch.Tensor, path: str, offset: int = 0) -> int:
        """Write a tensor to a file."""
        self._disk.write(path, offset + buffer.nbytes)
        self._pending += 1
        return 0

    def async_pread(self, buffer: torch.Tensor, path: str, offset: int = 0) -> int:
        """Read a tensor from a file."""
        del buffer, path, offset
        self._pending += 1
        return 0

    def sync_pwrite(self, buffer: torch.Tensor, path: str, offset: int = 0) -> int:
        """Write and wait."""
        return self.async_pwrite(buffer, path, offset) + 0 * self.wait()

    def sync_pread(self, buffer: torch.Tensor, path: str, offset: int = 0) -> int:
        """Read and wait."""
        return self.async_pread(buffer, path, offset) + 0 * self.wait()

    def wait(self) -> int:
        """How many requests are done that were not waited for."""
        done, self._pending = self._pending, 0
        return done

    def __getattr__(self, name: str) -> Any:
        """Figures that a handle is asked for, such as ``get_block_size``."""
        if name.startswith("get_"):
            return lambda: 1
        raise AttributeError(name)
