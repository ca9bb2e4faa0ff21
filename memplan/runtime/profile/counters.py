"""Who counts the bytes of a recording: one small class for each, all with ``take``, which lets the peak begin anew."""

import ctypes
import os
from typing import Protocol

import psutil
import torch

from memplan.errors import MemplanError, UsageError
from memplan.runtime.meters import cpu, cuda
from memplan.runtime.profile.ledger import CounterReading
from memplan.runtime.profile.records import Source

UNSEEN = "tensors from before the recording are not counted"
RESIDENT = "resident memory stands for tensors: it has everything else of the process in it, and no peak between looks"


class Counters(Protocol):
    """Counts bytes of one device."""

    @property
    def source(self) -> Source:
        """Who it is."""

    @property
    def notes(self) -> tuple[str, ...]:
        """What it cannot see."""

    def start(self) -> None:
        """Begin to count."""

    def take(self) -> CounterReading:
        """Look, and let the peak begin anew."""

    def stop(self) -> None:
        """End."""


class CpuAllocationCounters:
    """Counts PyTorch's CPU allocations one by one."""

    source: Source = "cpu"
    notes = (UNSEEN,)

    def __init__(self) -> None:
        library = cpu.quick_library()
        self._call = library.memplan_take
        self._into = (ctypes.c_int64 * 4)()
        self._values = memoryview(self._into).cast("B").cast("q")

    def start(self) -> None:
        """Put the counting allocator in place."""
        cpu.start_counting()

    def take(self) -> CounterReading:
        """About a microsecond."""
        self._call(self._into)
        allocated, peak, allocations, total = self._values
        return CounterReading(allocated, peak, total, allocations)

    def stop(self) -> None:
        """Take it away again, unless somebody else counts too."""
        cpu.stop_counting()


class CudaCounters:
    """Reads the caching allocator of one device, whose peak (``max_memory_allocated``) it resets at every look.

    memplan's own readings still have the peak of before.
    """

    source: Source = "cuda"
    notes = ()

    def __init__(self, index: int) -> None:
        self._index = index

    def start(self) -> None:
        """Nothing: the allocator always counts."""
        self.take()

    def take(self) -> CounterReading:
        """Before the process uses CUDA there is nothing, and reading creates no context."""
        stats = cuda.keeper.reset(self._index)
        if not stats:
            return CounterReading(0, 0, 0, 0)
        allocated = stats["allocated_bytes.all.current"]
        return CounterReading(
            allocated,
            max(stats[cuda.ALLOCATED], allocated),
            stats["allocated_bytes.all.allocated"],
            stats["allocation.all.allocated"],
        )

    def stop(self) -> None:
        """Nothing."""


class ResidentMemory:
    """Asks the system how much memory the process has, where nothing better is to be had."""

    source: Source = "resident"
    notes = (RESIDENT,)

    def __init__(self) -> None:
        self._process = psutil.Process(os.getpid())

    def start(self) -> None:
        """Nothing."""

    def take(self) -> CounterReading:
        """Some ten microseconds."""
        resident = int(self._process.memory_info().rss)
        return CounterReading(resident, resident)

    def stop(self) -> None:
        """Nothing."""


def chosen(device: str | None) -> tuple[str, Counters]:
    """Who counts on a device: ``cpu``, ``cuda`` or ``cuda:N``; None: the current CUDA device, else the CPU.

    Returns the device's full name, and its counters; without a C++ compiler, the CPU's are those of the system.

    Raises:
        UsageError: It is no such device.
    """
    has_cuda = torch.cuda.is_available()
    wanted = _device(device or ("cuda" if has_cuda else "cpu"))
    if wanted.type == "cpu":
        try:
            return "cpu", CpuAllocationCounters()
        except MemplanError:
            return "cpu", ResidentMemory()
    if wanted.type != "cuda" or not has_cuda:
        what = f"memory of '{wanted}' cannot be profiled here"
        raise UsageError(what, hint="name cpu, or a CUDA device that this process can see")
    # Asking for the current device would create a context.
    begun: bool = torch.cuda.is_initialized()  # type: ignore[no-untyped-call]
    named: int | None = wanted.index
    index = (torch.cuda.current_device() if begun else 0) if named is None else named
    return f"cuda:{index}", CudaCounters(index)


def _device(text: str) -> torch.device:
    try:
        return torch.device(text)
    except RuntimeError as error:
        raise UsageError(f"'{text}' is no device of PyTorch", hint="name cpu, cuda or cuda:0") from error
