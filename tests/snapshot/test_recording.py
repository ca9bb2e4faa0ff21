"""Recordings: what a replay writes down is what it did, checked by replays that share nothing with the recorder."""

import dataclasses
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from memplan.hardware.catalog import load_profile
from memplan.lifetime.records import Category, Lifetimes
from memplan.measure.played import play_on_device
from memplan.replay.allocator import make_allocator
from memplan.replay.cpu import NoCaching
from memplan.replay.policy import AllocatorPolicy
from memplan.replay.records import Request
from memplan.replay.replay import replay
from memplan.replay.script import repetitions_to_peak
from memplan.replay.stream import RequestStream, request_stream
from memplan.replay.validate import validate
from memplan.snapshot.analysis import analyse
from memplan.snapshot.history import replay_history
from memplan.snapshot.policy import recorded_policy
from memplan.snapshot.recorded_frames import category_of
from memplan.snapshot.recording import DeviceRates
from memplan.snapshot.records import DeviceSnapshot
from memplan.tracing.records import DeviceTraits
from tests.replay.replay_streams import MIB, requests
from tests.snapshot.recorded_traces import lifetimes_of, record, small_step

NATIVE, EXPANDABLE = AllocatorPolicy(), AllocatorPolicy(expandable_segments=True)
LIMIT = 96 * MIB
streams = requests(max_events=50).filter(bool)


def recorded(stream, policy, **options) -> DeviceSnapshot:
    lifetimes = lifetimes_of(stream)
    (device,) = record(lifetimes, request_stream(lifetimes.trace), policy=policy, **options).devices
    return device


def peak(device: DeviceSnapshot, *, grows: str, shrinks: str) -> int:
    total = highest = 0
    for event in device.events:
        total += event.nbytes * (event.action in grows.split()) - event.nbytes * (event.action in shrinks.split())
        highest = max(highest, total)
    return highest


def reserved_peak(device: DeviceSnapshot) -> int:
    return peak(device, grows="segment_alloc segment_map", shrinks="segment_free segment_unmap")


def requested_peak(device: DeviceSnapshot) -> int:
    return peak(device, grows="alloc", shrinks="free_completed")


@given(streams)
def test_a_recording_replays_to_the_last_address(stream) -> None:
    found = replay_history(recorded(stream, NATIVE))
    assert found.exact
    assert found.allocations_matched == found.allocations == sum(request.action == "alloc" for request in stream)
    assert found.segment_events_matched == found.segment_events


@given(streams, st.sampled_from([NATIVE, EXPANDABLE]), st.sampled_from([None, LIMIT]))
def test_its_peaks_are_those_of_the_plain_replay(stream, policy, limit) -> None:
    device = recorded(stream, policy, limit_bytes=limit)
    expected = replay(stream, policy=policy, limit_bytes=limit)
    assert requested_peak(device) == expected.peak_requested
    assert (device.events[-1].action == "oom") == (expected.out_of_memory is not None)
    # What is mapped before a request's first try fails is in the history, and may be given back before its second.
    assert reserved_peak(device) >= expected.peak_reserved
    if not expected.retries:
        assert reserved_peak(device) == expected.peak_reserved


@given(streams, st.sampled_from([NATIVE, EXPANDABLE]), st.sampled_from([None, LIMIT]))
def test_segments_come_and_go_until_only_those_at_the_end_are_left(stream, policy, limit) -> None:
    device = recorded(stream, policy, limit_bytes=limit)
    covered: set[int] = set()
    for event in device.events:
        pieces = set(range(event.address, event.address + event.nbytes, 2 * MIB))
        if event.action in ("segment_alloc", "segment_map"):
            assert not covered & pieces
            covered |= pieces
        elif event.action in ("segment_free", "segment_unmap"):
            assert pieces <= covered
            covered -= pieces
    segments = device.layout.segments
    assert covered == {piece for each in segments for piece in range(each.address, each.address + each.size, 2 * MIB)}
    assert validate(device.layout, limit_bytes=limit) == ()


@given(streams)
def test_the_layout_is_the_allocators(stream) -> None:
    allocator, live = make_allocator(NATIVE), {}
    for request in stream:
        if request.action == "alloc":
            live[request.key] = allocator.allocate(request.nbytes, request.stream)
        else:
            allocator.free(live.pop(request.key))
    assert recorded(stream, NATIVE).layout == allocator.layout()


@given(streams, st.sampled_from([NATIVE, EXPANDABLE, NoCaching()]))
def test_events_come_in_pytorchs_order(stream, policy) -> None:
    events = recorded(stream, policy).events
    for before, after in pairwise(events):
        assert before.microseconds < after.microseconds
        if before.action in ("segment_alloc", "segment_map"):
            assert after.action in ("alloc", "segment_map")
        if before.action == "free_requested":
            assert (after.action, after.address, after.nbytes) == ("free_completed", before.address, before.nbytes)


@given(streams)
def test_without_a_caching_allocator_every_allocation_is_a_segment(stream) -> None:
    device = recorded(stream, NoCaching())
    assert reserved_peak(device) == requested_peak(device) == replay(stream, policy=NoCaching()).peak_reserved
    assert all(len(segment.blocks) == 1 for segment in device.layout.segments)


def test_a_full_device_gives_its_cache_back_before_it_takes_more() -> None:
    stream = [Request("alloc", 0, 60 * MIB, 0), Request("free", 0, 0, 0), Request("alloc", 1, 80 * MIB, 0)]
    actions = [event.action for event in recorded(stream, NATIVE, limit_bytes=LIMIT).events]
    assert actions == ["segment_alloc", "alloc", "free_requested", "free_completed", "segment_free", "segment_alloc",
                       "alloc"]  # fmt: skip
    too_much = [*stream, Request("alloc", 2, 30 * MIB - 1, 0)]
    last = recorded(too_much, NATIVE, limit_bytes=LIMIT).events[-1]
    assert (last.action, last.address, last.nbytes) == ("oom", LIMIT - 80 * MIB, 30 * MIB)


def test_what_expandable_segments_map_and_unmap_for_a_request_is_written_in_its_order() -> None:
    """By hand: 80 of 96 MiB are mapped, 60 of them free; 60 in one piece need 20 more, so all free ones go first."""
    stream = [Request("alloc", 0, 20 * MIB, 0), Request("alloc", 1, 20 * MIB, 0), Request("alloc", 2, 40 * MIB, 0),
              Request("free", 0, 0, 0), Request("free", 2, 0, 0), Request("alloc", 3, 60 * MIB, 0)]  # fmt: skip
    device = recorded(stream, EXPANDABLE, limit_bytes=96 * MIB)
    first = device.events[0].address
    traffic = [
        (event.action, (event.address - first) // MIB, event.nbytes // MIB)
        for event in device.events[len(device.events) - 4 :]
    ]
    assert traffic == [
        ("segment_unmap", 0, 20), ("segment_unmap", 40, 40), ("segment_map", 40, 60), ("alloc", 40, 60),
    ]  # fmt: skip
    assert replay_history(device).exact


@pytest.fixture(scope="module")
def step() -> Lifetimes:
    return small_step()


def test_stacks_say_what_the_trace_knows(step: Lifetimes) -> None:
    (device,) = record(step, request_stream(step.trace), policy=NATIVE).devices
    allocs = [event for event in device.events if event.action == "alloc"]
    weight = next(event for event in allocs if event.nbytes == 256 * 1024 * 4)
    assert [(frame.file, frame.function) for frame in weight.frames] == [
        ("tensor", "up.weight"),
        ("module", "up"),
        ("phase", "setup"),
        ("category", "parameter"),
    ]
    product = next(event for event in allocs if event.nbytes == 2048 * 1024 * 4)
    op, line, *levels = product.frames
    assert op == ("op", 0, "aten.addmm.default")
    assert line.file.endswith("recorded_traces.py")
    assert line.function == "up"
    assert [(frame.file, frame.function) for frame in levels] == [
        ("module", "up"),
        ("phase", "forward"),
        # relu saves its result and not what it was made from.
        ("category", "temporary"),
    ]
    assert {category_of(event.frames) for event in allocs} <= set(Category)
    assert len({id(event.frames) for event in device.events}) == len({event.frames for event in device.events})


def test_live_blocks_know_who_asked_for_them(step: Lifetimes) -> None:
    (device,) = record(step, request_stream(step.trace), policy=NATIVE).devices
    live = {block.address for each in device.layout.segments for block in each.blocks if block.state != "free"}
    last = {event.address: event.frames for event in device.events if event.action == "alloc"}
    assert device.block_frames == {address: last[address] for address in live}


@pytest.mark.parametrize("gpu", ["a100-80g", "cpu"])
def test_the_recording_of_a_measured_step_reaches_the_reported_peaks(gpu: str) -> None:
    profile = load_profile(gpu)
    lifetimes = small_step(DeviceTraits.of(profile))
    measured = play_on_device(lifetimes, profile)
    policy = NoCaching() if gpu == "cpu" else NATIVE
    repetitions = repetitions_to_peak(measured.stream, measured.memory)
    (device,) = record(lifetimes, measured.stream, policy=policy, repetitions=repetitions).devices
    assert reserved_peak(device) == measured.memory.peak_reserved
    assert requested_peak(device) == measured.memory.peak_requested


def test_a_prediction_for_the_cpu_is_not_read_as_a_cards() -> None:
    lifetimes = small_step(DeviceTraits.of(load_profile("cpu")))
    predicted = record(lifetimes, request_stream(lifetimes.trace), policy=NoCaching())
    analysis = analyse(predicted.devices[0], recorded_policy(predicted.settings))
    assert analysis.peak.allocated == analysis.reserved_peak.reserved == requested_peak(predicted.devices[0])
    assert (analysis.caching, analysis.replay, analysis.notes) == (False, None, ())


def test_a_step_is_repeated_until_its_peak(step: Lifetimes) -> None:
    stream = request_stream(step.trace)
    assert stream.closes
    once, thrice = (record(step, stream, policy=NATIVE, repetitions=count).devices[0] for count in (1, 3))
    again = sum(request.nbytes > 0 for request in stream.step)
    count = {"alloc": 1, "free_requested": 1}
    assert (
        sum(count.get(event.action, 0) for event in thrice.events)
        == sum(count.get(event.action, 0) for event in once.events) + 2 * again
    )
    found = replay_history(thrice)
    assert found.exact
    memory = play_on_device(step, load_profile("a100-80g")).memory
    late = dataclasses.replace(memory, peak_at=len(stream.prefix) + 2 * len(stream.step) + 1)
    assert repetitions_to_peak(stream, late) == 3
    assert repetitions_to_peak(RequestStream(prefix=stream.prefix, step=(), rename={}, closes=False), memory) == 1


def test_the_clock_counts_events_and_what_ops_take(step: Lifetimes) -> None:
    stream = request_stream(step.trace)
    (plain,) = record(step, stream, policy=NATIVE).devices
    assert [event.microseconds for event in plain.events] == list(range(len(plain.events)))
    # At a byte per second every op takes as many seconds as it moves bytes, and arithmetic takes none.
    (timed,) = record(step, stream, policy=NATIVE, rates=DeviceRates(flops=1e30, bandwidth=1.0)).devices
    replayed = [event for event in step.trace.events if event.storage in step.buffers]
    last = replayed[len(stream.prefix) + len(stream.step) - 1]
    moved = sum(op.bytes_moved for op in step.trace.ops[: last.op])
    assert moved > 0
    assert timed.events[-1].microseconds == pytest.approx(moved * 10**6 + len(timed.events) - 1, rel=1e-12)
