"""Which allocator option to run with, and what allocation costs in time.

Costs are orders of magnitude, to rank policies: drivers, cards and what a synchronisation has to
wait for differ by factors.
"""

from collections.abc import Mapping, Sequence
from typing import Final

from memplan.simulate.records import DeviceCalls, OptionRecommendation, PolicyRun
from memplan.units import format_bytes

ALIKE_BYTES = 0.01
"""Reserved peaks closer than this share count as equal: less than an option is worth."""
ALIKE_COST = 0.1
"""Allocation costs closer than this share count as equal: the cost table is no better."""
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


def recommend(policies: Sequence[PolicyRun], microseconds: Mapping[str, float]) -> OptionRecommendation | None:
    """The policy of PyTorch's with the least reserved peak; among equals the cheapest, then the one of fewest options.

    ``microseconds`` has the modelled cost of each. None if every such policy runs out of memory.
    """
    able = [run for run in policies if run.conf is not None and run.out_of_memory is None]
    if not able:
        return None
    least = min(run.peak_reserved for run in able)
    small = [run for run in able if run.peak_reserved <= least * (1 + ALIKE_BYTES)]
    cheapest = min(microseconds[run.name] for run in small)
    cheap = [run for run in small if microseconds[run.name] <= cheapest * (1 + ALIKE_COST)]
    best = min(cheap, key=lambda run: (options_in(run.conf or ""), run.peak_reserved))
    return OptionRecommendation(
        policy=best.name,
        conf=best.conf or "",
        command=f"export PYTORCH_CUDA_ALLOC_CONF={best.conf}" if best.conf else "unset PYTORCH_CUDA_ALLOC_CONF",
        reason="; ".join((_reason(best, policies), *best.notes)),
    )


def options_in(conf: str) -> int:
    """Number of options in a ``PYTORCH_CUDA_ALLOC_CONF``."""
    return conf.count(":") - conf.count(":", conf.find("["), conf.find("]")) if conf else 0


def _reason(best: PolicyRun, policies: Sequence[PolicyRun]) -> str:
    holds = f"{format_bytes(best.peak_reserved)} reserved, {100 * best.fragmentation:.1f} % fragmentation"
    native = next((run for run in policies if run.conf == ""), None)
    if native is None or native is best:
        return f"PyTorch's defaults do as well as any option: {holds}"
    if native.out_of_memory is not None:
        return f"{holds}; PyTorch's defaults run out of memory in step {native.failed_step}"
    saved = native.peak_reserved - best.peak_reserved
    if saved > 0:
        return f"{holds}, {format_bytes(saved)} less than by default"
    return f"{holds}; PyTorch's defaults cost more time"


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
