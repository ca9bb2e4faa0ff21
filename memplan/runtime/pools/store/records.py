"""What a store tells about itself. Torch-free."""

from dataclasses import dataclass

from memplan.errors import MemplanError
from memplan.units import Bytes


class SpillError(MemplanError):
    """The disk took nothing more. Everything that was in the store still is; the item that was to be added is not."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StoreStatistics:
    """A store's accounts at one moment."""

    items: int
    """Items that can be read."""
    tensor_bytes: Bytes
    """Bytes of their tensors."""
    memory_bytes: Bytes
    """Bytes that they take in memory, compressed."""
    disk_bytes: Bytes
    """Bytes that they take on disk, compressed."""
    file_bytes: Bytes
    """Bytes written to files that are still there: those of items that are gone, too."""
    appended: int
    """Items that were ever added."""
    spilled: int
    """Of them, those that went to disk."""
