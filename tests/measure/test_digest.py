"""The digest of a replay: its figures are those of the replay itself, however few samples it keeps."""

import json
from unittest.mock import patch

import pytest
from hypothesis import given
from hypothesis import strategies as st

from memplan.errors import UsageError
from memplan.lifetime.records import Lifetimes
from memplan.measure import history as module
from memplan.measure.digest_records import HistoryDigest
from memplan.measure.document import TIMELINE
from memplan.measure.history import Digester
from memplan.replay.allocator import Policy, make_allocator
from memplan.replay.cpu import NoCaching
from memplan.replay.policy import AllocatorPolicy
from memplan.replay.records import MemoryProfile, Request
from memplan.replay.replay import replay, replay_steps
from memplan.replay.script import ReplayScript
from memplan.replay.stream import request_stream
from tests.replay.replay_streams import requests
from tests.snapshot.recorded_traces import lifetimes_of, small_step

MIB = 1 << 20
streams = requests(max_events=60).filter(bool)
policies = st.sampled_from([AllocatorPolicy(), AllocatorPolicy(expandable_segments=True), NoCaching()])


def digest_of(
    lifetimes: Lifetimes, policy: Policy, memory: MemoryProfile, *, repetitions: int = 1, limit_bytes: int | None = None
) -> HistoryDigest:
    script = ReplayScript(lifetimes, request_stream(lifetimes.trace), repetitions)
    allocator = make_allocator(policy, limit_bytes=limit_bytes)
    digester = Digester(script, allocator, memory.peak_at)
    script.play(allocator, (digester,))
    return digester.digest()


@given(streams, policies, st.integers(1, 70))
def test_the_highest_samples_are_the_peaks_of_the_replay(stream: list[Request], policy: Policy, samples: int) -> None:
    memory = replay(stream, policy=policy)
    with patch.object(module, "MOST_SAMPLES", samples):
        digest = digest_of(lifetimes_of(stream), policy, memory)
    assert digest.events == len(stream)
    assert len(digest.curve.events) in {min(samples, len(stream)), min(samples, len(stream)) + 1}
    assert list(digest.curve.events) == sorted(set(digest.curve.events))
    assert max(digest.curve.allocated) == memory.peak_allocated
    assert max(digest.curve.reserved) == memory.peak_reserved
    assert digest.peak_event == memory.peak_at
    if memory.peak_reserved:
        at = digest.curve.events.index(digest.peak_event)
        assert digest.curve.allocated[at] == memory.allocated_at_peak
        assert digest.curve.reserved[at] == memory.peak_reserved
        assert digest.reserved_peak_event <= digest.peak_event


@given(streams, policies)
def test_categories_sum_to_what_the_allocator_counts(stream: list[Request], policy: Policy) -> None:
    digest = digest_of(lifetimes_of(stream), policy, replay(stream, policy=policy))
    allocator, live, counted = make_allocator(policy), {}, []
    for action, key, nbytes, on_stream in stream:
        if action == "free":
            allocator.free(live.pop(key))
        else:
            live[key] = allocator.allocate(nbytes, on_stream)
        counted.append(allocator.allocated)
    held = zip(*digest.curve.categories.values(), strict=True) if digest.curve.categories else [()] * len(counted)
    assert [sum(parts) for parts in held] == counted == list(digest.curve.allocated)


@given(streams, st.sampled_from([AllocatorPolicy(), AllocatorPolicy(expandable_segments=True)]))
def test_the_map_tiles_what_is_reserved(stream: list[Request], policy: AllocatorPolicy) -> None:
    memory = replay(stream, policy=policy)
    digest = digest_of(lifetimes_of(stream), policy, memory)
    blocks = [block for segment in digest.segments for block in segment.blocks]
    assert sum(segment.nbytes for segment in digest.segments) == memory.peak_reserved
    assert sum(block.nbytes for block in blocks if block.holder >= 0) == memory.allocated_at_peak
    assert sum(block.requested for block in blocks) == memory.requested_at_peak
    assert all(block.requested == 0 for block in blocks if block.holder < 0)


@given(streams, policies, st.integers(0, 10))
def test_buffers_alive_at_a_sample_sum_to_it_as_far_as_they_are_kept(
    stream: list[Request], policy: Policy, most: int
) -> None:
    memory = replay(stream, policy=policy)
    whole = digest_of(lifetimes_of(stream), policy, memory)
    assert whole.buffers_left_out == 0
    for event, allocated in zip(whole.curve.events, whole.curve.allocated, strict=True):
        assert sum(each.nbytes for each in whole.buffers if each.start <= event < each.end) == allocated
    with patch.object(module, "MOST_BUFFERS", most):
        part = digest_of(lifetimes_of(stream), policy, memory)
    assert len(part.buffers) + part.buffers_left_out == len(whole.buffers)
    largest = sorted((each.nbytes for each in whole.buffers), reverse=True)[:most]
    assert sorted((each.nbytes for each in part.buffers), reverse=True) == largest


@given(streams, policies)
def test_plain_data_holds_all_of_it(stream: list[Request], policy: Policy) -> None:
    digest = digest_of(lifetimes_of(stream), policy, replay(stream, policy=policy))
    assert TIMELINE.read(json.loads(json.dumps(TIMELINE.plain(digest)))) == digest


@pytest.mark.parametrize("repetitions", [1, 2, 7])
@pytest.mark.parametrize("policy", [AllocatorPolicy(), AllocatorPolicy(expandable_segments=True), NoCaching()])
def test_a_repeated_step_is_played_as_the_replay_plays_it(policy: Policy, repetitions: int) -> None:
    lifetimes = small_step()
    stream = request_stream(lifetimes.trace)
    assert stream.step
    memory = replay_steps(stream.prefix, stream.step, stream.rename, policy=policy, max_steps=repetitions)
    digest = digest_of(lifetimes, policy, memory, repetitions=memory.steps_replayed)
    assert max(digest.curve.allocated) == memory.peak_allocated
    assert max(digest.curve.reserved) == memory.peak_reserved
    assert digest.events == len(stream.prefix) + memory.steps_replayed * len(stream.step)
    traced = len(lifetimes.trace.steps)
    assert {span.step for span in digest.spans} >= set(range(1, traced + memory.steps_replayed))


def test_phases_stand_in_order_without_a_gap() -> None:
    lifetimes = small_step()
    digest = digest_of(lifetimes, NoCaching(), replay(request_stream(lifetimes.trace).prefix, policy=NoCaching()))
    edges = [0, *(span.end for span in digest.spans)]
    assert [span.start for span in digest.spans] == edges[:-1]
    assert edges[-1] == digest.events
    assert [span.phase for span in digest.spans[:4]] == ["setup", "forward", "backward", "optimizer"]
    assert [span.step for span in digest.spans[:4]] == [0, 1, 1, 1]


def test_holders_are_told_by_module_and_name() -> None:
    lifetimes = small_step()
    digest = digest_of(lifetimes, NoCaching(), replay(request_stream(lifetimes.trace).prefix, policy=NoCaching()))
    parameters = {(holder.module, holder.name) for holder in digest.holders if holder.category == "parameter"}
    assert parameters == {("up", "weight"), ("up", "bias"), ("down", "weight"), ("down", "bias")}


def test_a_full_device_ends_the_history() -> None:
    stream = [Request("alloc", 0, 30 * MIB, 0), Request("alloc", 1, 30 * MIB, 0), Request("alloc", 2, 1, 0)]
    memory = replay(stream, policy=AllocatorPolicy(), limit_bytes=40 * MIB)
    digest = digest_of(lifetimes_of(stream), AllocatorPolicy(), memory, limit_bytes=40 * MIB)
    assert digest.events == 1
    assert digest.curve.allocated == (30 * MIB,)
    assert [(each.start, each.end) for each in digest.buffers] == [(0, 1)]


@pytest.mark.parametrize("broken", [{}, {"events": 3}, {"curve": None}, []])
def test_what_is_no_timeline_is_refused(broken: object) -> None:
    with pytest.raises(UsageError, match="cannot be read"):
        TIMELINE.read(broken)
