"""Bytes on disk: files without names, written by plain writes, read through memory maps. Torch-free.

A file without a name is gone when its process is, however that ends. What does not fit on the disk fails in ``write``
with an error; writing through a map would end the process (``SIGBUS``).
"""

import mmap
import os
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

SEGMENT = 64 << 20
"""Bytes of a file: the space of items that are gone comes back file by file."""


class SpillFile:
    """One file."""

    def __init__(self, directory: Path | None, size: int) -> None:
        self.file = tempfile.TemporaryFile(dir=directory, prefix="memplan-")  # noqa: SIM115 - closed by its owner.
        try:
            os.truncate(self.file.fileno(), size)
            self.map = mmap.mmap(self.file.fileno(), size, access=mmap.ACCESS_READ)
        except BaseException:
            self.file.close()
            raise
        self.size = size
        self.used = 0
        """Bytes written."""
        self.live = 0
        """Spans that somebody still needs."""


@dataclass(frozen=True, slots=True)
class ByteSpan:
    """Bytes in a file."""

    segment: SpillFile
    """Which."""
    offset: int
    """The first of them."""
    nbytes: int
    """How many."""

    def read(self) -> memoryview:
        """The bytes, as the system loads them. They stay readable while the view lives, whoever closes the file."""
        return memoryview(self.segment.map)[self.offset : self.offset + self.nbytes]


class Spill:
    """Appends to files. One thread writes at a time; spans are read by any.

    Files have so many bytes and lie in a folder; None: the system's temporary one. ``write`` is as ``os.pwrite``.
    """

    def __init__(
        self, directory: Path | None, write: Callable[[int, memoryview, int], int] = os.pwrite, size: int = SEGMENT
    ) -> None:
        self._directory, self._write, self._size = directory, write, size
        self._segments: list[SpillFile] = []

    @property
    def file_bytes(self) -> int:
        """Bytes written to files that are there."""
        return sum(segment.used for segment in self._segments)

    def write(self, payload: bytes) -> ByteSpan:
        """Write bytes.

        Raises:
            OSError: The disk does not take them; what was written before stays, and nothing is counted.
        """
        last = self._segments[-1] if self._segments else None
        if last is not None and last.used + len(payload) <= last.size:
            self._append(last, payload)
        else:
            fresh = SpillFile(self._directory, max(self._size, len(payload), 1))
            try:
                self._append(fresh, payload)
            except BaseException:
                fresh.file.close()
                raise
            self._segments.append(fresh)
            if last is not None:
                self._drop(last)
        segment = self._segments[-1]
        segment.used += len(payload)
        segment.live += 1
        return ByteSpan(segment, segment.used - len(payload), len(payload))

    def free(self, span: ByteSpan) -> None:
        """Nobody needs a span any more; a file that is full and of which none is needed goes."""
        span.segment.live -= 1
        self._drop(span.segment)

    def close(self) -> None:
        """Close all files. Maps go with their last reader."""
        while self._segments:
            self._segments.pop().file.close()

    def _append(self, segment: SpillFile, payload: bytes) -> None:
        done, view = 0, memoryview(payload)
        while done < len(payload):
            done += self._write(segment.file.fileno(), view[done:], segment.used + done)

    def _drop(self, segment: SpillFile) -> None:
        if not segment.live and segment in self._segments[:-1]:
            self._segments.remove(segment)
            segment.file.close()
