"""What a recording holds. Torch-free. Times are nanoseconds since the recording began, sizes are bytes."""

from array import array
from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import accumulate, islice
from typing import Literal, NamedTuple

Depth = Literal["counters", "sampled", "full"]
"""How closely a recording looks: at the borders of regions, also in between from time to time, or at everything."""
DEPTHS: tuple[Depth, ...] = ("counters", "sampled", "full")
Source = Literal["cuda", "cpu", "resident"]
"""Who counts: CUDA's caching allocator, memplan's counters of PyTorch's CPU allocator, or the system this process."""


class Region(NamedTuple):
    """One region, by its path: all its calls together, from whichever thread."""

    path: tuple[str, ...]
    """Names of the regions around it, outermost first, and its own."""
    calls: int
    """How often it was entered."""
    errors: int
    """How many of these ended with an exception; their figures count all the same."""
    delta_bytes: int
    """What was alive in the end less what was alive in the beginning, over all calls."""
    peak_bytes: int
    """Most alive at once during any call."""
    growth_bytes: int
    """The largest peak of a call above where that call began."""
    total_bytes: int | None
    """Sum of all requests; None where nobody counts them (``resident``)."""
    allocations: int | None
    """How many requests; None likewise."""
    seconds: float
    """Wall time of all calls."""
    self_seconds: float
    """Of it, what was not spent in regions inside of it."""


class Sample(NamedTuple):
    """What was seen at one moment."""

    nanoseconds: int
    """When."""
    allocated_bytes: int
    """Alive then."""
    peak_bytes: int
    """Most alive at once since the sample before."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Events:
    """Allocations and frees in order of time, as columns: there may be millions."""

    nanoseconds: "array[int]" = field(default_factory=lambda: array("q"))
    """When."""
    addresses: "array[int]" = field(default_factory=lambda: array("q"))
    """Where."""
    sizes: "array[int]" = field(default_factory=lambda: array("q"))
    """How much; negative for a free."""
    threads: "array[int]" = field(default_factory=lambda: array("q"))
    """Which thread, by number; -1 where nobody says."""
    dropped: int = 0
    """Events that there was no room for: the oldest on CUDA, else the newest."""

    def __len__(self) -> int:
        """Number of events."""
        return len(self.sizes)

    def levels(self, start: int = 0) -> Iterator[int]:
        """Bytes alive after each event, given those before the first."""
        return islice(accumulate(self.sizes, initial=start), 1, None)


class Border(NamedTuple):
    """A region was entered or left."""

    nanoseconds: int
    """When."""
    thread: int
    """Which thread, numbered as those of events are; -1 where nobody says."""
    region: int
    """Index in ``Recording.regions`` of the innermost region from here on; -1 for none."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Overhead:
    """What recording itself took, as it measured it; what the allocator's counters take is not in it."""

    borders: int
    """Times that a region was entered or left."""
    border_seconds: float
    """Wall time that this took."""
    samples: int
    """Times that the sampling thread looked."""
    sampling_seconds: float
    """Processor time that this took."""
    interval_seconds: float
    """What lay between two looks in the end: longer than asked for where a look takes long."""
