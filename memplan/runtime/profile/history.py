"""Who writes every allocation of a recording down: memplan's CPU counters, ``torch.profiler``, or CUDA's allocator.

All give events in nanoseconds since the recording began, and say for a moment of the recording's own clock when that
was on the clock of their events: to the event where they can.
"""

import time
from collections.abc import Iterable, Mapping
from statistics import median
from typing import Any, NamedTuple, Protocol

from torch.profiler import record_function

from memplan.runtime.meters import cpu
from memplan.runtime.profile.kineto import Profiler
from memplan.runtime.profile.records import Events
from memplan.seam import memory

_PIN = "memplan.pin."
"""How ranges begin that mark a moment for ``torch.profiler``."""
ASKED_FOR = (
    "events have the sizes that were asked for; blocks are larger, so that the curve stays below the counters' peak"
)
SLOW = "torch.profiler wrote the allocations down, for want of a C++ compiler: steps took longer than without it"


class Written(NamedTuple):
    """What a history holds."""

    events: Events
    """All events."""
    moments: Mapping[int, int]
    """Moment that was pinned → when it was on the clock of the events; those left out are the same on both."""


class History(Protocol):
    """Writes events down."""

    @property
    def notes(self) -> tuple[str, ...]:
        """What it does to a run, or cannot see."""

    def start(self) -> None:
        """Begin."""

    def pin(self, moment: int) -> None:
        """Remember a moment, in nanoseconds since the recording began."""

    def thread(self) -> int:
        """Number of the calling thread, as the events have it."""

    def finish(self, began: int) -> Written:
        """End a recording that began at a moment of ``time.monotonic_ns``."""


class CountedHistory:
    """The counting allocator's; its clock is the recording's."""

    notes = ()

    def __init__(self, most_events: int) -> None:
        self._most = most_events
        self.thread = cpu.quick_library().memplan_this_thread

    def start(self) -> None:
        """Begin."""
        cpu.start_history(self._most)

    def pin(self, moment: int) -> None:
        """Nothing to do."""

    def finish(self, began: int) -> Written:
        """End."""
        events, dropped = cpu.end_history()
        rows = ((each.nanoseconds - began, each.address, each.nbytes, each.thread) for each in events)
        return Written(columns(rows, dropped), {})


class ProfiledHistory:
    """That of ``torch.profiler``: its clock is another, and moments are ranges on it."""

    notes = (SLOW,)

    def __init__(self) -> None:
        self._profiler = Profiler()

    def start(self) -> None:
        """Begin."""
        self._profiler.start()

    def pin(self, moment: int) -> None:
        """Leave a range."""
        with record_function(f"{_PIN}{moment}"):
            pass

    def thread(self) -> int:
        """Nobody says."""
        return -1

    def finish(self, began: int) -> Written:  # noqa: ARG002 - the pins say it.
        """End."""
        found = self._profiler.finish(lambda name: name.startswith(_PIN))
        pins = {int(each.name.removeprefix(_PIN)): each.start for each in found.ranges}
        offset = int(median(there - here for here, there in pins.items())) if pins else 0
        rows = ((each.nanoseconds - offset, each.address, each.nbytes, -1) for each in found.events if each.nbytes)
        return Written(columns(rows), {here: there - offset for here, there in pins.items()})


class CudaHistory:
    """The caching allocator's (``torch.cuda.memory._record_memory_history``), without call stacks.

    Its levels are those of ``requested_bytes``, not of ``allocated_bytes``: to the byte in all 46 histories of an H100
    in ``benchmarks/gpu/results`` (torch 2.11), whose blocks are up to 1.8 % larger.

    More than ``most_events`` push the oldest out; each free is two of them.
    """

    notes = (ASKED_FOR,)

    def __init__(self, index: int, most_events: int) -> None:
        self._index, self._most = index, most_events

    def start(self) -> None:
        """Begin."""
        memory.record_memory_history(
            "all", context=None, max_entries=self._most, device=self._index, clear_history=True
        )

    def pin(self, moment: int) -> None:
        """Nothing to do."""

    def thread(self) -> int:
        """Nobody says."""
        return -1

    def finish(self, began: int) -> Written:
        """End."""
        snapshot: dict[str, Any] = memory.snapshot(self._index)
        memory.record_memory_history(None, device=self._index)
        # Its clock is that of the day.
        offset = began + time.time_ns() - time.monotonic_ns()
        entries = snapshot["device_traces"][self._index] if snapshot["device_traces"] else []
        rows = (
            (1000 * each["time_us"] - offset, each["addr"], _SIGNS[each["action"]] * each["size"], -1)
            for each in entries
            if each["action"] in _SIGNS
        )
        return Written(columns(rows, len(entries) >= self._most), {})


_SIGNS = {"alloc": 1, "free_requested": -1}
"""A free counts when it is asked for, as in ``torch.cuda.memory_allocated``."""


def columns(rows: Iterable[tuple[int, int, int, int]], dropped: int = 0) -> Events:
    """Events in order of time, from time, address, size and thread."""
    events = Events(dropped=dropped)
    # Threads write down in turns that differ by less than a microsecond from the clock's.
    for nanoseconds, address, size, thread in sorted(rows, key=lambda row: row[0]):
        events.nanoseconds.append(nanoseconds)
        events.addresses.append(address)
        events.sizes.append(size)
        events.threads.append(thread)
    return events
