"""A memory history as a Chrome trace: https://ui.perfetto.dev and ``chrome://tracing`` open it.

Counters show bytes over time; slices show what ran (phases, modules, source lines and ops of a recording, Python
functions of a real history), from the first event of each to the next event elsewhere; the largest allocations are bars
of their own. The format is that of Google's "Trace Event Format" document, JSON object form.
"""

import json
from collections import Counter
from collections.abc import Iterable, Iterator
from heapq import nlargest
from typing import Any, Final

from memplan.report.history.figures import Allocation, StackReader, Totals, allocations, label, moments
from memplan.snapshot.recorded_frames import category_of
from memplan.snapshot.records import DeviceSnapshot, Frame, Snapshot
from memplan.units import format_bytes

LARGEST: Final = 40
"""Allocations with bars of their own: as many rows as a person looks through."""
_CALLS, _ALLOCATIONS = 1, 2  # Thread ids: rows of the viewer, in this order.


def render(snapshot: Snapshot, *, name: str) -> str:
    """Write a real snapshot, or a recording, as a Chrome trace: JSON text with a name for its title."""
    events = [event for device in snapshot.devices for event in _device_events(device, name)]
    content = {"displayTimeUnit": "ms", "otherData": {"exporter": "memplan", "name": name}, "traceEvents": events}
    return json.dumps(content, separators=(",", ":"))


def _device_events(device: DeviceSnapshot, name: str) -> Iterator[dict[str, Any]]:
    story = list(moments(device))
    times = _times(story)
    for event in (*_names(name), *_slices(story, times), *_counters(story, times), *_bars(device, times)):
        yield {**event, "pid": device.device}


def _times(story: list[Totals]) -> list[int]:
    """Microseconds from the first event; the number of the event where no times were recorded. One more for the end."""
    begin = story[0].event.microseconds if story else 0
    recorded = any(moment.event.microseconds for moment in story)
    times = [moment.event.microseconds - begin if recorded else index for index, moment in enumerate(story)]
    return [*times, (times[-1] + 1 if times else 0)]


def _names(name: str) -> Iterator[dict[str, Any]]:
    yield {"ph": "M", "name": "process_name", "args": {"name": name}}
    yield {"ph": "M", "name": "thread_name", "tid": _CALLS, "args": {"name": "what runs"}}


def _slices(story: list[Totals], times: list[int]) -> Iterator[dict[str, Any]]:
    """Nested bars: each level from the first event with it to the next event without it; outer ones first."""
    yield from sorted(_unordered_slices(story, times), key=lambda bar: (bar["ts"], -bar["dur"]))


def _unordered_slices(story: list[Totals], times: list[int]) -> Iterator[dict[str, Any]]:
    stacks = StackReader(categories=False)
    running: list[tuple[Frame, int]] = []
    for moment, time in zip(story, times, strict=False):
        stack = stacks.read(moment.event.frames)
        shared = 0
        while shared < min(len(stack), len(running)) and running[shared][0] == stack[shared]:
            shared += 1
        yield from _closed(running, shared, time)
        running += [(frame, time) for frame in stack[shared:]]
    yield from _closed(running, 0, times[-1])


def _closed(running: list[tuple[Frame, int]], depth: int, time: int) -> Iterator[dict[str, Any]]:
    """End all levels from ``depth`` on. Those that took no measurable time are left out."""
    for frame, begin in running[depth:]:
        if time > begin:
            yield {"ph": "X", "name": label(frame), "tid": _CALLS, "ts": begin, "dur": time - begin}
    del running[depth:]


def _counters(story: list[Totals], times: list[int]) -> Iterator[dict[str, Any]]:
    """Bytes after each event that changes them: in all, in segments, and by category where that is known."""
    last: dict[str, int] = {}
    by_category: Counter[str] = Counter()
    for moment, time in zip(story, times, strict=False):
        figures = {"requested": moment.requested, "reserved": moment.reserved}
        category = category_of(moment.allocated_by or ())
        if category:
            by_category[category] += moment.event.nbytes if moment.event.action == "alloc" else -moment.event.nbytes
            figures[category] = by_category[category]
        for name, nbytes in figures.items():
            if last.get(name) != nbytes:
                last[name] = nbytes
                yield {"ph": "C", "name": name, "ts": time, "args": {"bytes": nbytes}}


def _bars(device: DeviceSnapshot, times: list[int]) -> Iterator[dict[str, Any]]:
    """The largest allocations, each from birth to death."""
    stacks = StackReader(categories=False)
    made = (each for each in allocations(device) if each.begin >= 0)
    for number, each in enumerate(_in_order(nlargest(LARGEST, made, key=lambda each: each.nbytes))):
        bar = {"cat": "allocation", "id2": {"local": str(number)}, "tid": _ALLOCATIONS, "name": _bar_name(each)}
        stack = [label(frame) for frame in stacks.read(each.frames)]
        yield {**bar, "ph": "b", "ts": times[each.begin], "args": {"bytes": each.nbytes, "stack": stack}}
        yield {**bar, "ph": "e", "ts": times[each.end]}


def _in_order(found: Iterable[Allocation]) -> list[Allocation]:
    return sorted(found, key=lambda each: each.begin)


def _bar_name(each: Allocation) -> str:
    return f"{format_bytes(each.nbytes)} {category_of(each.frames)}".rstrip()
