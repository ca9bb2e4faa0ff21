"""The planned allocator's functions, compiled on first use."""

import ctypes
from collections.abc import Sequence
from functools import cache
from pathlib import Path

from memplan.runtime.arena.records import ArenaCounts, StepRecording
from memplan.runtime.native import compiled
from memplan.units import Bytes

OUTSIDE = 2**64 - 1
"""Offset of an allocation that is left to PyTorch (``kOutside``)."""
_SOURCE = Path(__file__).with_name("planned_allocator.cpp")


class _Event(ctypes.Structure):
    _fields_ = (("key", ctypes.c_int64), ("nbytes", ctypes.c_int64))


class _Counts(ctypes.Structure):
    _fields_ = tuple(
        (name, ctypes.c_uint64) for name in ("planned", "outside", "unlike", "occupied", "outside_bytes", "alive")
    )


@cache
def library() -> ctypes.CDLL:
    """The compiled allocator.

    Raises:
        MemplanError: There is no C++ compiler, or it fails.
    """
    found = compiled(_SOURCE, "arena")
    found.memplan_play.argtypes = [
        ctypes.c_void_p,
        ctypes.c_uint64,
        ctypes.POINTER(ctypes.c_uint64),
        ctypes.POINTER(ctypes.c_uint64),
        ctypes.c_uint64,
    ]
    found.memplan_events.restype = ctypes.c_uint64
    return found


def start_recording() -> None:
    """Write down what this thread allocates from here on."""
    library().memplan_record()


def start_playing(address: int, nbytes: int, sizes: Sequence[int], offsets: Sequence[int | None]) -> None:
    """Put this thread's allocations at their offsets from here on."""
    array = ctypes.c_uint64 * len(sizes)
    places = (OUTSIDE if offset is None else offset for offset in offsets)
    library().memplan_play(address, nbytes, array(*sizes), array(*places), len(sizes))


def stop() -> None:
    """Leave allocating to PyTorch; what lies in an arena stays there."""
    library().memplan_stop()


def recording() -> StepRecording:
    """What was recorded last."""
    count = library().memplan_events(None)
    events = (_Event * count)()
    library().memplan_events(events)
    return StepRecording(events=tuple((event.key, event.nbytes) for event in events))


def counts() -> ArenaCounts:
    """What became of the allocations since playing began."""
    found = _Counts()
    library().memplan_counts(ctypes.byref(found))
    return ArenaCounts(
        planned=found.planned,
        outside=found.outside,
        unlike=found.unlike,
        occupied=found.occupied,
        outside_bytes=Bytes(found.outside_bytes),
        alive=found.alive,
    )
