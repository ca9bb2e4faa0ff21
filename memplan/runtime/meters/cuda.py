"""A CUDA device: the caching allocator's own counters, and what the driver has left."""

import torch

from memplan.runtime.meters.records import DeviceReading


def device_count() -> int:
    """CUDA devices that this process already uses; 0 before it does, so that a reading creates no context."""
    begun: bool = torch.cuda.is_initialized()  # type: ignore[no-untyped-call]
    return torch.cuda.device_count() if begun else 0


def has_context(index: int) -> bool:
    """Does this process use that very device? To ask the driver about another would create a context on it."""
    known = getattr(torch._C, "_cuda_hasPrimaryContext", None)  # noqa: SLF001 - there is no public way to ask.
    return known is None or bool(known(index))


def cuda_reading(index: int) -> DeviceReading:
    """Read one device.

    Args:
        index: As this process counts them.

    Returns:
        Its allocator's counters (``torch.cuda.memory_stats``), and what all processes together use.
    """
    stats = torch.cuda.memory_stats(index)
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
        peak_allocated=stats.get("allocated_bytes.all.peak", 0),
        peak_reserved=stats.get("reserved_bytes.all.peak", 0),
        used=total - free,
        total=total,
        retries=stats.get("num_alloc_retries", 0),
        ooms=stats.get("num_ooms", 0),
    )
