"""One reading of all that this process can see."""

import platform
import time
from functools import cache

from memplan.runtime.meters import cpu, cuda
from memplan.runtime.meters.host import host_reading
from memplan.runtime.meters.records import DeviceReading, HostReading, Reading


def read() -> Reading:
    """Read every CUDA device that this process uses; without one the CPU's tensors.

    It asks no device to wait: kernels in flight go on.
    """
    host = host_reading()
    devices = tuple(cuda.cuda_reading(index) for index in range(cuda.device_count()) if cuda.has_context(index))
    return Reading(seconds=time.time(), devices=devices or (cpu_reading(host),), host=host)


def cpu_reading(host: HostReading | None = None) -> DeviceReading:
    """The CPU as a device: exact bytes of tensors while ``memplan.runtime.meters.cpu`` counts, else none."""
    host = host or host_reading()
    counted = cpu.counters()
    return DeviceReading(
        device="cpu",
        name=_processor(),
        allocated=counted.allocated if counted else None,
        requested=counted.allocated if counted else None,
        peak_allocated=counted.peak if counted else None,
        used=host.total - host.available,
        total=host.total,
        resident=host.resident,
        times=counted.nanoseconds if counted else (),
        spent=counted.spent if counted else 0,
        sizes=counted.sizes if counted else (),
    )


@cache
def _processor() -> str:
    return platform.processor() or platform.machine() or "cpu"
