"""What allocation costs in time: one table, and the sum over a run's calls.

Orders of magnitude, to rank policies: drivers, cards and what a synchronisation has to wait for differ by factors.
"""

from typing import Final

from memplan.simulate.records import DeviceCalls

# Microseconds. All are assumptions of an order of magnitude unless a source is named.
CACHED_HIT: Final = 1.0
"""One request served from the cache and its free: assumption; a lock and a look-up in a tree on the host."""
DEVICE_ALLOCATION: Final = 100.0
"""One ``cudaMalloc``: assumption; about 50 at 4 to 512 KiB and several hundred at tens of MiB in the University of
Virginia's "Memory Allocation Overhead" (cs.virginia.edu/~mwb7w/cuda_support), measured
on an early CUDA card."""
DEVICE_FREE: Final = 1000.0
"""One ``cudaFree``: assumption; it waits for the device, so most of it is work that could have overlapped."""
MAP: Final = 50.0
"""Creating and mapping one unit of an expandable segment (three driver calls): assumption."""
UNMAP: Final = 100.0
"""Unmapping and releasing one: assumption; PyTorch synchronises the device before it unmaps."""
RETRY: Final = 10_000.0
"""Flushing the cache, beside its frees: assumption; the device is idle until the step's kernels are queued anew."""
COPY_BYTES_PER_MICROSECOND: Final = 500_000.0
"""Moving live bytes within the device: assumption, half of 1 TB/s as every byte is read and written."""


def microseconds(calls: DeviceCalls) -> float:
    """Modelled time of so many calls."""
    return (
        CACHED_HIT * calls.requests
        + DEVICE_ALLOCATION * calls.allocations
        + DEVICE_FREE * calls.frees
        + MAP * calls.maps
        + UNMAP * calls.unmaps
        + RETRY * calls.retries
        + calls.moved_bytes / COPY_BYTES_PER_MICROSECOND
    )
