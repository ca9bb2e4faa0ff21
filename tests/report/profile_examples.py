"""Runs that are known to the byte: as a plan predicts them, and as a recording shows them."""

from array import array
from dataclasses import replace
from itertools import accumulate
from typing import NamedTuple

from hypothesis import strategies as st

from memplan.measure.digest_records import Curve, DigestBuffer, HistoryDigest, Holder, Span
from memplan.report.profile.plan import PlannedRun
from memplan.runtime.profile.recording import Recording
from memplan.runtime.profile.records import Border, Events, Overhead, Region
from tests.report.example_estimates import CPU, make_estimate

TICK = 1000
"""Nanoseconds from one event to the next."""


class Program(NamedTuple):
    """What a run does."""

    setup: tuple[int, ...]
    """Sizes that are there for good."""
    step: tuple[tuple[str, int], ...]
    """``take`` so many bytes for this step, ``keep`` them into the next, ``drop`` what the step took, by number."""


class Event(NamedTuple):
    """One event of a run."""

    step: int
    size: int
    """Negative for a free."""
    key: int
    """Of its buffer."""


SIZES = st.integers(17, 5000)
PROGRAMS = st.builds(
    Program,
    setup=st.lists(SIZES, min_size=1, max_size=4).map(tuple),
    step=st.lists(
        st.tuples(st.sampled_from(["take", "keep"]), SIZES) | st.tuples(st.just("drop"), st.integers(0, 5)),
        min_size=1,
        max_size=15,
    )
    .filter(lambda step: step[0][0] != "drop")
    .map(tuple),
)


def played(program: Program, steps: int) -> list[Event]:
    """All events of a run of so many steps."""
    events = [Event(0, size, key) for key, size in enumerate(program.setup)]
    key, kept = len(events), list[Event]()
    for step in range(1, steps + 1):
        old, kept, taken = kept, [], []
        for action, what in program.step:
            if action == "drop":
                if taken:
                    gone = taken.pop(what % len(taken))
                    events.append(Event(step, -gone.size, gone.key))
                continue
            made = Event(step, what, key)
            key += 1
            events.append(made)
            (taken if action == "take" else kept).append(made)
        events += [Event(step, -each.size, each.key) for each in (*old, *taken)]
    return events


def plan_of(events: list[Event], *, repeats: bool = True) -> PlannedRun:
    """A plan that predicts these events, with a sample for each."""
    levels = tuple(accumulate(event.size for event in events))
    starts = {event.key: index for index, event in enumerate(events) if event.size > 0}
    ends = {event.key: index for index, event in enumerate(events) if event.size < 0}
    steps = [event.step for event in events]
    spans = [
        Span("forward" if step else "setup", step, steps.index(step), len(steps) - steps[::-1].index(step))
        for step in sorted(set(steps))
    ]
    digest = HistoryDigest(
        events=len(events),
        peak_event=levels.index(max(levels)),
        reserved_peak_event=levels.index(max(levels)),
        spans=tuple(spans),
        curve=Curve(
            events=tuple(range(len(events))), allocated=levels, reserved=levels, categories={"temporary": levels}
        ),
        holders=(Holder("layers.0", "model.py:1", "aten.mm", "temporary"),),
        buffers=tuple(
            DigestBuffer(0, events[start].size, start, ends.get(key, len(events))) for key, start in starts.items()
        ),
        buffers_left_out=0,
        segments=(),
    )
    return PlannedRun(estimate=replace(make_estimate(gpu=CPU), repeats=repeats), digest=digest)


def recording_of(events: list[Event], *, start_bytes: int = 0) -> Recording:
    """A recording that saw these events; keys stand for addresses, steps are marked before their first events."""
    levels = [start_bytes, *accumulate((event.size for event in events), initial=start_bytes)]
    steps = sorted({event.step for event in events} - {0})
    firsts = [next(index for index, event in enumerate(events) if event.step == step) for step in steps]
    last = TICK * len(events)
    return Recording(
        name="train",
        depth="full",
        device="cpu",
        source="cpu",
        began=1.0,
        seconds=last / 1e9,
        start_bytes=start_bytes,
        end_bytes=levels[-1],
        peak_bytes=max(levels),
        regions=(
            Region(("train",), 1, 0, levels[-1], max(levels), max(levels) - start_bytes, 10**6, 12, 0.25, 0.05),
            Region(("train", "forward"), 3, 1, 0, max(levels), 4096, 9 * 10**5, 9, 0.2, 0.2),
        ),
        steps=tuple(TICK * first - TICK // 2 for first in firsts),
        events=Events(
            nanoseconds=array("q", (TICK * index for index in range(len(events)))),
            addresses=array("q", ((event.key + 1) << 32 for event in events)),
            sizes=array("q", (event.size for event in events)),
            threads=array("q", (0 for _ in events)),
        ),
        borders=(Border(-1, 0, 0), Border(last // 2, 0, 1), Border(last, 0, -1)),
        overhead=Overhead(borders=8, border_seconds=1e-6, samples=0, sampling_seconds=0.0, interval_seconds=0.0),
        notes=("tensors from before the recording are not counted",),
        versions={"memplan": "0.1.0", "torch": "2.13.0"},
    )


EXAMPLE = Program(
    setup=(40960, 8192), step=(("take", 4096), ("keep", 2048), ("take", 16384), ("drop", 0), ("take", 1024))
)
