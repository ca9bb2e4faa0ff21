"""A CUDA device: the caching allocator's own counters, and what the driver has left."""

from threading import Lock

import torch

from memplan.runtime.meters.records import DeviceReading
from memplan.seam import memory

ALLOCATED, RESERVED = "allocated_bytes.all.peak", "reserved_bytes.all.peak"
"""Peaks in ``torch.cuda.memory_stats``."""


class PeakKeeper:
    """Peaks that were reset by somebody who needs them to begin anew, so that others do not lose them. Thread-safe."""

    def __init__(self) -> None:
        self._lock = Lock()
        self._peaks: dict[tuple[int, str], int] = {}

    def reset(self, index: int) -> dict[str, int]:
        """Let PyTorch's peaks of a device begin anew, and keep what they were.

        Returns:
            The device's ``memory_stats`` before; empty, and nothing is reset, where this process does not use it yet.
        """
        with self._lock:
            stats: dict[str, int] = torch.cuda.memory_stats(index)
            if stats:
                for name in (ALLOCATED, RESERVED):
                    self._peaks[index, name] = max(stats.get(name, 0), self._peaks.get((index, name), 0))
                torch.cuda.reset_peak_memory_stats(index)
            return stats

    def with_kept(self, index: int) -> dict[str, int]:
        """A device's ``memory_stats``, whose peaks are those since the last ``forget``."""
        with self._lock:
            stats: dict[str, int] = dict(torch.cuda.memory_stats(index))
            kept = {name: peak for (device, name), peak in self._peaks.items() if device == index}
        return stats | {name: max(peak, stats.get(name, 0)) for name, peak in kept.items()}

    def forget(self, index: int) -> None:
        """Let everybody's peaks of a device begin anew."""
        with self._lock:
            torch.cuda.reset_peak_memory_stats(index)
            self._peaks = {key: peak for key, peak in self._peaks.items() if key[0] != index}


keeper = PeakKeeper()
"""The process's one."""


def device_count() -> int:
    """CUDA devices that this process already uses; 0 before it does, so that a reading creates no context."""
    begun: bool = torch.cuda.is_initialized()  # type: ignore[no-untyped-call]
    return torch.cuda.device_count() if begun else 0


def has_context(index: int) -> bool:
    """Does this process use that very device? To ask the driver about another would create a context on it."""
    known = memory.cuda_hasPrimaryContext
    return known is None or bool(known(index))


def cuda_reading(index: int) -> DeviceReading:
    """Read one device, as this process counts them: its allocator's counters, and what all processes together use."""
    stats = keeper.with_kept(index)
    free, total = torch.cuda.mem_get_info(index)
    properties = torch.cuda.get_device_properties(index)
    return DeviceReading(
        device=f"cuda:{index}",
        name=str(properties.name),
        uuid=str(getattr(properties, "uuid", "")),
        allocated=stats.get("allocated_bytes.all.current", 0),
        requested=stats.get("requested_bytes.all.current", 0),
        reserved=stats.get("reserved_bytes.all.current", 0),
        inactive=stats.get("inactive_split_bytes.all.current", 0),
        peak_allocated=stats.get(ALLOCATED, 0),
        peak_reserved=stats.get(RESERVED, 0),
        used=total - free,
        total=total,
        retries=stats.get("num_alloc_retries", 0),
        ooms=stats.get("num_ooms", 0),
    )
