"""Readings. None stands where nobody can tell: a driver knows nothing of an allocator's blocks."""

from dataclasses import dataclass
from typing import NamedTuple


@dataclass(frozen=True, slots=True, kw_only=True)
class DeviceReading:
    """One device at one moment, in bytes."""

    device: str
    """``cuda:0``, or ``cpu`` for tensors in host memory."""
    name: str
    """As the driver calls it."""
    uuid: str = ""
    """The driver's name for this very card; empty for ``cpu``."""
    allocated: int | None = None
    """In live blocks of this process's allocator."""
    requested: int | None = None
    """Asked for, of these blocks."""
    reserved: int | None = None
    """In segments; None where the allocator has none (``cpu``)."""
    inactive: int | None = None
    """Free, but in segments that are partly in use, so that nobody else can have it (``inactive_split_bytes``)."""
    peak_allocated: int | None = None
    """Most that ever was in live blocks."""
    peak_reserved: int | None = None
    """Most that ever was in segments."""
    used: int
    """Taken by all processes together, CUDA contexts included."""
    total: int
    """All there is; for ``cpu`` what the host, or the container's limit, gives."""
    resident: int | None = None
    """``cpu``: resident memory of the process that read it, or of all of a run; None for what has memory of its own."""
    retries: int = 0
    """Times that the allocator gave its cache back to serve a request."""
    ooms: int = 0
    """Times that it could not serve one."""
    times: tuple[int, ...] = ()
    """Allocations by time taken, of those timed (one of 17): the i-th took less than 2**i nanoseconds; empty where
    nobody measures it."""
    spent: int = 0
    """Nanoseconds that those took."""
    sizes: tuple[int, ...] = ()
    """Bytes alive by size: the i-th is of blocks of less than 2**i bytes; empty where nobody counts them."""

    @property
    def in_use(self) -> int:
        """What reports show: all that is taken of a card, but of a host only what the processes read hold."""
        return self.used if self.resident is None else self.resident

    @property
    def free(self) -> int:
        """What a process could still take from the driver."""
        return max(0, self.total - self.used)

    @property
    def cached(self) -> int | None:
        """Reserved, and not allocated."""
        return None if self.reserved is None or self.allocated is None else self.reserved - self.allocated

    @property
    def fragmentation(self) -> float | None:
        """Share of the reserved bytes that are free in segments partly in use; None where there are none."""
        if self.reserved is None or self.inactive is None:
            return None
        return self.inactive / self.reserved if self.reserved else 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class HostReading:
    """Host memory at one moment, in bytes."""

    resident: int
    """Of this process."""
    available: int
    """What may still be taken: the container's limit counts where it is lower."""
    total: int
    """All there is, likewise."""
    swap_used: int
    """Of all processes."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Reading:
    """All that was read at one moment."""

    seconds: float
    """Since the epoch (``time.time``)."""
    devices: tuple[DeviceReading, ...]
    """CUDA devices in order, or ``cpu`` alone."""
    host: HostReading
    """The machine around them."""


class CpuCounters(NamedTuple):
    """What PyTorch's CPU allocator has served since counting began, in bytes; see ``memplan.runtime.meters.cpu``."""

    allocated: int
    """Alive now."""
    peak: int
    """Most alive at once since the peak was last reset."""
    allocations: int
    """How often memory was asked for."""
    frees: int
    """How often it was given back."""
    total: int
    """Sum of all requests."""
    nanoseconds: tuple[int, ...]
    """Allocations by time taken: the i-th took less than 2**i nanoseconds and not less than half of that. One of 17 is
    timed (``kTimed``), for looking at the clock takes longer than all other counting."""
    spent: int
    """Nanoseconds that those took."""
    sizes: tuple[int, ...]
    """Bytes alive by size: the i-th is of blocks of less than 2**i bytes and not less than half of that."""


class CpuEvent(NamedTuple):
    """One allocation or free."""

    nanoseconds: int
    """When, on the clock of ``time.monotonic_ns``."""
    address: int
    """Where."""
    nbytes: int
    """How much; negative for a free."""
    thread: int
    """Which thread, numbered as they first came."""
