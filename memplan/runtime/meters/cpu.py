"""Counters of PyTorch's CPU allocator, like those that CUDA's has: bytes alive, their peak, times, a history.

PyTorch counts nothing on the CPU. A small allocator in C++ in front of its own does, at some tens of nanoseconds an
allocation. It sees what is allocated while it counts; tensors from before stay unseen, and their frees too.
"""

import ctypes
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from threading import Lock

from memplan.errors import MemplanError
from memplan.runtime import native
from memplan.runtime.meters.records import CpuCounters, CpuEvent

_SOURCE = Path(__file__).with_name("counting_allocator.cpp")
_POWERS = 48
"""``kPowers``."""
_lock = Lock()
_users = 0
_keeps_history = False


class _Counters(ctypes.Structure):
    _fields_ = (
        *((name, ctypes.c_int64) for name in ("allocated", "peak", "allocations", "frees", "total", "spent")),
        ("times", ctypes.c_int64 * _POWERS),
        ("sizes", ctypes.c_int64 * _POWERS),
    )


class _Event(ctypes.Structure):
    _fields_ = tuple((name, ctypes.c_int64) for name in ("nanoseconds", "address", "nbytes", "thread"))


def _library() -> ctypes.CDLL:
    found = native.compiled(_SOURCE, "counting")
    found.memplan_record_events.argtypes = [ctypes.c_uint64]
    found.memplan_recorded_events.argtypes = [
        ctypes.POINTER(_Event),
        ctypes.c_uint64,
        ctypes.POINTER(ctypes.c_uint64),
    ]
    found.memplan_recorded_events.restype = ctypes.c_uint64
    return found


def can_count() -> bool:
    """Is there what compiles the counters? The first call may take some seconds to compile them."""
    try:
        _library()
    except MemplanError:
        return False
    return True


@contextmanager
def counting() -> Iterator[None]:
    """Count what is allocated in the context; contexts may be nested and overlap between threads.

    Raises:
        MemplanError: The allocator cannot be compiled, or an arena has its place.
    """
    start_counting()
    try:
        yield
    finally:
        stop_counting()


def start_counting() -> None:
    """Count from here on, until as many calls of ``stop_counting`` have come.

    Raises:
        MemplanError: The allocator cannot be compiled, or an arena has its place.
    """
    global _users  # noqa: PLW0603 - there is one allocator in a process.
    library = _library()
    with _lock:
        if not _users:
            native.claim("counting of CPU memory")
            library.memplan_count()
        _users += 1


def stop_counting() -> None:
    """Undo one ``start_counting``; without one, nothing."""
    global _users  # noqa: PLW0603
    with _lock:
        if _users == 1:
            _library().memplan_uncount()
            native.release()
        _users = max(0, _users - 1)


def is_counting() -> bool:
    """Are the counters running?"""
    return _users > 0


def counters() -> CpuCounters | None:
    """What has been counted; None while nobody counts."""
    if not _users:
        return None
    found = _Counters()
    _library().memplan_counters(ctypes.byref(found))
    return CpuCounters(
        allocated=found.allocated,
        peak=found.peak,
        allocations=found.allocations,
        frees=found.frees,
        total=found.total,
        nanoseconds=tuple(found.times),
        spent=found.spent,
        sizes=tuple(found.sizes),
    )


def reset_peak() -> None:
    """Let the peak begin anew at what is alive now; that of ``take`` is another one."""
    _library().memplan_reset_peak()


def quick_library() -> ctypes.PyDLL:
    """The library for calls so short that they keep the interpreter's lock (``take``, ``this_thread``)."""
    found = ctypes.PyDLL(_library()._name)  # noqa: SLF001 - ctypes has no other way to open the same library again.
    found.memplan_take.argtypes = [ctypes.POINTER(ctypes.c_int64)]
    found.memplan_take.restype = None
    found.memplan_this_thread.argtypes = []
    found.memplan_this_thread.restype = ctypes.c_int64
    return found


def start_history(most_events: int) -> None:
    """Keep every allocation and free from here on, up to so many.

    Raises:
        MemplanError: Somebody else keeps them: there is one history in a process.
    """
    global _keeps_history  # noqa: PLW0603
    library = _library()
    with _lock:
        if _keeps_history:
            raise MemplanError(
                "a history of CPU allocations is being kept already: there is one in a process",
                hint="end the other recording first (memplan.profile(depth='full') is one)",
            )
        _keeps_history = True
        library.memplan_record_events(most_events)


def end_history() -> tuple[list[CpuEvent], int]:
    """Keep no more, and return and forget what was kept (``history``); without a history, nothing."""
    global _keeps_history  # noqa: PLW0603
    with _lock:
        try:
            return history() if _keeps_history else ([], 0)
        finally:
            _keeps_history = False
            _library().memplan_record_events(0)


def history() -> tuple[list[CpuEvent], int]:
    """What was kept since ``start_history``, oldest first, and how many events found no room."""
    dropped = ctypes.c_uint64()
    library = _library()
    room = library.memplan_recorded_events(None, 0, ctypes.byref(dropped))
    events = (_Event * room)()
    library.memplan_recorded_events(events, room, ctypes.byref(dropped))
    return [CpuEvent(each.nanoseconds, each.address, each.nbytes, each.thread) for each in events], dropped.value
