"""A recording over a plan: against runs whose every event and level is known."""

from collections.abc import Sequence
from dataclasses import replace
from itertools import accumulate

import pytest
from hypothesis import given
from hypothesis import strategies as st

from memplan.measure.digest_records import HistoryDigest
from memplan.report.profile.overlay import overlay
from memplan.report.profile.plan import repeated
from memplan.report.profile.records import Overlay
from memplan.runtime.profile.recording import Recording
from tests.report.profile_examples import EXAMPLE, PROGRAMS, Event, Program, plan_of, played, recording_of


def laid(recording: Recording, events: list[Event], *, repeats: bool = True) -> Overlay:
    """The recording over a plan of these events."""
    assert recording.events is not None
    return overlay(recording, recording.events, plan_of(events, repeats=repeats))


def sizes_of(digest: HistoryDigest) -> list[int]:
    """What each event does, from the buffers."""
    sizes = [0] * digest.events
    for buffer in digest.buffers:
        sizes[buffer.start] += buffer.nbytes
        if buffer.end < digest.events:
            sizes[buffer.end] -= buffer.nbytes
    return sizes


@given(PROGRAMS, st.integers(2, 5))
def test_the_same_run_lies_on_its_plan(program: Program, steps: int) -> None:
    events = played(program, steps)
    found = laid(recording_of(events), played(program, 2))
    levels = list(accumulate(event.size for event in events))
    assert found.matched == found.predicted_events == found.measured_events == len(events)
    assert (found.largest.nbytes, found.median_bytes, found.base_bytes, found.between_bytes) == (0, 0, 0, 0)
    assert found.compared == len(events)
    assert list(found.curve) == levels == list(found.side.digest.curve.allocated)
    assert found.gaps == ()
    assert found.side.repeated == steps - 2
    assert [piece.step for piece in found.pieces] == list(range(steps + 1))
    for piece in found.pieces:
        inside = [level for level, event in zip(levels, events, strict=True) if event.step == piece.step]
        assert piece.predicted_peak_bytes == piece.measured_peak_bytes == max(inside)


@given(PROGRAMS, st.integers(1, 4))
def test_a_repeated_timeline_is_that_of_a_longer_run(program: Program, times: int) -> None:
    digest = repeated(plan_of(played(program, 2)).digest, times)
    longer = played(program, 2 + times)
    assert sizes_of(digest) == [event.size for event in longer]
    assert digest.spans == plan_of(longer).digest.spans
    assert digest.curve == plan_of(longer).digest.curve


@given(PROGRAMS, st.data())
def test_events_that_the_plan_has_not_are_counted_and_what_they_hold_is_told(
    program: Program, data: st.DataObject
) -> None:
    events = played(program, 2)
    extra = data.draw(st.lists(st.tuples(st.integers(0, len(events) - 1), st.integers(10_000, 99_999)), max_size=5))
    mixed, held = list[Event](), 0
    apart = list[int]()
    for index, event in enumerate(events):
        for at, size in extra:
            if at == index:
                mixed.append(Event(event.step, size, 10_000 + len(mixed)))
                held += size
        mixed.append(event)
        apart.append(held)
    recording = recording_of(mixed)
    found = laid(recording, events)
    assert found.matched == found.predicted_events == len(events)
    assert found.measured_events == len(mixed)
    assert abs(found.largest.nbytes) == max(apart)
    assert found.measured_peak == max(found.curve) == recording.peak_bytes


@given(PROGRAMS, st.data())
def test_events_that_did_not_come_are_gaps(program: Program, data: st.DataObject) -> None:
    events = played(program, 2)
    key = data.draw(st.sampled_from(sorted({event.key for event in events if event.step})))
    # A size that nothing else has, so that there is only one way to match the rest.
    marked = [
        event._replace(size=77_777 if event.size > 0 else -77_777) if event.key == key else event for event in events
    ]
    seen = [event for event in marked if event.key != key]
    if {event.step for event in seen} != {0, 1, 2}:
        return
    found = laid(recording_of(seen), marked)
    missing = [index for index, event in enumerate(marked) if event.key == key]
    assert found.matched == found.measured_events == len(seen)
    assert all(any(start <= index < end for start, end in found.gaps) for index in missing)
    assert sum(end - start for start, end in found.gaps) == len(missing)


@given(PROGRAMS)
def test_a_recording_that_began_after_set_up_says_what_was_added(program: Program) -> None:
    events = played(program, 3)
    found = laid(recording_of([event for event in events if event.step]), played(program, 2))
    assert found.base_bytes == sum(program.setup)
    assert found.largest.nbytes == 0
    assert any("began after set-up" in note for note in found.notes)
    # A device that counts from its beginning needs no such help.
    known = recording_of([event for event in events if event.step], start_bytes=sum(program.setup))
    assert laid(known, played(program, 2)).base_bytes == 0


def test_steps_that_do_not_repeat_are_not_made_up() -> None:
    found = laid(recording_of(played(EXAMPLE, 4)), played(EXAMPLE, 2), repeats=False)
    assert [piece.step for piece in found.pieces] == [0, 1, 2]
    assert any("has 2 steps and the run 4" in note for note in found.notes)


def test_a_run_without_steps_is_one_piece() -> None:
    recording = replace(recording_of(played(EXAMPLE, 2)), steps=())
    found = laid(recording, played(EXAMPLE, 2))
    assert [piece.step for piece in found.pieces] == [-1]
    assert found.share == 1.0
    assert any("no steps were marked" in note for note in found.notes)


def test_a_run_that_has_nothing_to_do_with_the_plan_matches_nothing() -> None:
    other = Program(setup=(999, 998), step=(("take", 997), ("keep", 996)))
    found = laid(recording_of(played(other, 2)), played(EXAMPLE, 2))
    assert (found.matched, found.share, found.largest, found.compared) == (0, 0.0, None, 0)
    assert found.measured_peak == recording_of(played(other, 2)).peak_bytes


def test_numbers_that_became_tensors_are_left_out() -> None:
    events = played(EXAMPLE, 2)
    scalars = [each for event in events for each in (event, Event(event.step, 8, -1), Event(event.step, -8, -1))]
    found = laid(recording_of(scalars), events)
    assert found.matched == found.measured_events == len(events)
    assert found.largest.nbytes == 0
    assert any("up to 16 B" in note for note in found.notes)


@given(PROGRAMS)
def test_with_small_buffers_left_out_only_what_is_known_is_compared(program: Program) -> None:
    events = played(program, 2)
    plan = plan_of(events)
    kept = sorted(plan.digest.buffers, key=lambda buffer: -buffer.nbytes)[: max(2, len(plan.digest.buffers) // 2)]
    half = range(0, len(events), 2)
    curve = replace(
        plan.digest.curve,
        events=tuple(half),
        allocated=tuple(plan.digest.curve.allocated[index] for index in half),
        reserved=tuple(plan.digest.curve.reserved[index] for index in half),
        categories={},
    )
    left = len(plan.digest.buffers) - len(kept)
    digest = replace(plan.digest, buffers=tuple(sorted(kept, key=lambda each: each.start)), curve=curve,
                     buffers_left_out=left)  # fmt: skip
    recording = recording_of(events)
    found = overlay(recording, recording.events, replace(plan, digest=digest))
    least = min(buffer.nbytes for buffer in kept) if left else 16
    large = [index for index, event in enumerate(events) if abs(event.size) > least]
    assert found.matched == found.predicted_events == len(large)
    assert found.compared == len([index for index in large if not left or index in half])
    assert found.largest is None or found.largest.nbytes == 0


@pytest.mark.parametrize("rounding", [512])
def test_a_card_hands_out_multiples_of_512_bytes(rounding: int) -> None:
    def rounded(events: Sequence[Event]) -> list[Event]:
        sign = {True: 1, False: -1}
        return [
            event._replace(size=sign[event.size > 0] * (-(-abs(event.size) // rounding) * rounding)) for event in events
        ]

    events = played(Program(setup=(1000, 70_000), step=(("take", 513), ("keep", 1))), 2)
    found = laid(replace(recording_of(events), source="cuda", device="cuda:0"), rounded(events))
    assert found.share == 1.0
    assert found.largest.nbytes == 0
