"""Replays against an unrolled stream, and the laws of profiles."""

import dataclasses

import pytest
from hypothesis import given
from hypothesis import strategies as st

from memplan.errors import MemplanError
from memplan.replay.allocator import make_allocator
from memplan.replay.cpu import NoCaching
from memplan.replay.play import SAME_LEVEL
from memplan.replay.policy import AllocatorPolicy, PinnedPolicy
from memplan.replay.records import ALL_STREAMS, Request
from memplan.replay.replay import replay, replay_steps
from memplan.units import MIB
from tests.replay.replay_streams import programs_of_streams, requests, sizes

policies = st.sampled_from(
    [
        AllocatorPolicy(),
        AllocatorPolicy(expandable_segments=True),
        AllocatorPolicy(max_split_size=20 * MIB),
        AllocatorPolicy(per_process_memory_fraction=0.75, garbage_collection_threshold=0.5),
        PinnedPolicy(),
        NoCaching(),
    ]
)
limits = st.one_of(st.none(), st.integers(60, 400).map(lambda mib: mib * MIB))


@st.composite
def programs(draw):
    """One step: ("alloc", name, nbytes, stream) and ("free", name, age), where age 1 was born one step earlier.

    Some are used by a second stream as soon as they are born, and streams are synchronized here and there.
    """
    names = draw(st.integers(1, 7))
    events = []
    for name in range(names):
        birth = ("alloc", name, draw(sizes), draw(st.integers(0, 1)))
        events.insert(draw(st.integers(0, len(events))), birth)
        age = draw(st.sampled_from([0, 0, 0, 1, 1, 2, None]) if name else st.sampled_from([0, 1, 2]))
        if age is not None:
            first = events.index(birth) + 1 if age == 0 else 0
            events.insert(draw(st.integers(first, len(events))), ("free", name, age))
        if draw(st.booleans()):
            events.insert(events.index(birth) + 1, ("record_stream", name, 0, draw(st.integers(0, 2))))
    for _ in range(draw(st.integers(0, 2))):
        moment = ("synchronize", 0, 0, draw(st.integers(ALL_STREAMS, 2)))
        events.insert(draw(st.integers(0, len(events))), moment)
    return events


def unroll(program, steps, first=0):
    """Steps ``first`` to ``steps`` with a fresh key for every birth."""
    for step in range(first, steps):
        for action, name, amount, *stream in program:
            if action != "free":
                yield Request(action, 1000 * step + name, amount, stream[0])
            elif step - amount >= 0:
                yield Request("free", 1000 * (step - amount) + name, 0, 0)


def successors(program, step):
    """Who stands in for whom after ``step``, as a trace of steps 0 to ``step`` would show."""
    return {
        1000 * (step - back) + name: 1000 * (step - back + 1) + name
        for action, name, age, *_ in program
        if action == "free"
        for back in range(1, age + 1)
    }


@given(programs(), policies, limits)
def test_repeating_a_step_equals_unrolling_it(program, policy, limit):
    prefix, step = list(unroll(program, 2)), list(unroll(program, 3, first=2))
    options = {"policy": policy, "limit_bytes": limit}
    repeated = replay_steps(prefix, step, successors(program, 2), max_steps=6, **options)
    unrolled = replay(list(unroll(program, 2 + repeated.steps_replayed)), **options)
    same = {"steps_replayed": repeated.steps_replayed, "settled": repeated.settled, "growth": repeated.growth}
    assert repeated == dataclasses.replace(unrolled, **same)
    assert repeated.settled or repeated.steps_replayed == 6 or repeated.out_of_memory is not None
    if repeated.settled:
        longer = replay(list(unroll(program, 2 + repeated.steps_replayed + 7)), **options)
        kept = ("peak_requested", "peak_allocated", "peak_reserved", "peak_allocated_at", "peak_at")
        assert [getattr(longer, name) for name in kept] == [getattr(repeated, name) for name in kept]
        assert longer.out_of_memory is None


@given(programs(), policies, limits)
def test_a_stream_is_played_while_its_peak_grows(program, policy, limit):
    prefix, step = list(unroll(program, 2)), list(unroll(program, 3, first=2))
    options = {"policy": policy, "limit_bytes": limit}
    found = replay_steps(prefix, step, successors(program, 2), max_steps=6, while_it_grows=True, **options)
    unrolled = [replay(list(unroll(program, 2 + count)), **options) for count in range(7)]
    peaks = [each.peak_reserved for each in unrolled]
    failed = next((count for count, each in enumerate(unrolled) if each.out_of_memory is not None), 6)
    still = next((count for count in range(2, 7) if peaks[count] == peaks[count - 2]), 6)
    assert found.steps_replayed == min(failed, still)
    assert found.peak_reserved == peaks[min(failed, still)]


@given(st.one_of(requests(), programs_of_streams()), policies, limits)
def test_profile_laws(stream, policy, limit):
    profile = replay(stream, policy=policy, limit_bytes=limit)
    assert profile.peak_requested <= profile.peak_active <= profile.peak_reserved
    assert profile.peak_allocated <= profile.peak_active
    assert profile.end_reserved <= profile.peak_reserved <= (limit or profile.peak_reserved)
    active = profile.allocated_at_peak + profile.pending_at_peak
    assert profile.requested_at_peak <= active <= profile.peak_reserved
    assert 0 <= profile.external_fragmentation < 1
    assert 0 <= profile.internal_fragmentation < 1
    if profile.out_of_memory:
        failed = profile.out_of_memory
        assert stream[failed.event].action == "alloc"
        assert stream[failed.event].nbytes <= failed.rounded
        assert not profile.settled
    elif profile.peak_reserved:
        assert stream[profile.peak_at].action == stream[profile.peak_allocated_at].action == "alloc"


@given(requests(), policies, limits)
def test_without_sharing_nothing_is_pending(stream, policy, limit):
    profile = replay(stream, policy=policy, limit_bytes=limit)
    assert (profile.peak_active, profile.pending_at_peak) == (profile.peak_allocated, 0)


@given(programs_of_streams(), policies)
def test_synchronizing_after_every_request_leaves_nothing_to_wait_for(stream, policy):
    """Then sharing costs no memory, as if no stream had used another's blocks.

    Only outside a capture: inside one nobody asks whether a stream has caught up, so another block is found.
    """
    outside = [request for request in stream if not request.action.startswith("pool_")]
    always = [line for request in outside for line in (request, Request("synchronize", 0, 0, ALL_STREAMS))]
    alone = [request for request in outside if request.action not in {"record_stream", "synchronize"}]
    shared, plain = replay(always, policy=policy), replay(alone, policy=policy)
    same = ("peak_reserved", "end_reserved", "peak_allocated")
    assert [getattr(shared, name) for name in same] == [getattr(plain, name) for name in same]


def play(allocator, stream, live):
    totals = []
    for request in stream:
        if request.action == "alloc":
            block = allocator.allocate(request.nbytes, request.stream)
            if block is not None:
                live[request.key] = block
            totals.append((block is None, block and block.size))
        elif request.action == "free":
            if request.key in live:
                allocator.free(live.pop(request.key))
        elif request.action != "record_stream":
            allocator.perform(request, None)
        elif request.key in live:
            allocator.perform(request, live[request.key])
        totals.append((allocator.allocated, allocator.pending, allocator.reserved, allocator.segments))
    return totals


@given(
    programs_of_streams(max_events=16, pools=False),
    programs_of_streams(max_events=40),
    policies.filter(lambda policy: not isinstance(policy, NoCaching)),
    limits,
)
def test_equal_fingerprints_mean_an_equal_future(past, future, policy, limit):
    """A stretch is repeated until the state is one seen before; then both moments continue alike, whatever comes."""

    def after(times):
        allocator = make_allocator(policy, limit_bytes=limit)
        for _ in range(times):
            live = {}
            play(allocator, past, live)
            for block in live.values():
                allocator.free(block)
        return allocator

    seen = {}
    for times in range(12):
        state = after(times).fingerprint({})
        if state in seen:
            one, other = after(seen[state]), after(times)
            assert play(one, future, {}) == play(other, future, {})
            return
        seen[state] = times


@given(requests(), policies, st.integers(0, 60))
def test_peaks_only_grow(stream, policy, cut):
    part, whole = replay(stream[:cut], policy=policy), replay(stream, policy=policy)
    for name in ("peak_requested", "peak_allocated", "peak_reserved"):
        assert getattr(part, name) <= getattr(whole, name)


@given(requests())
def test_without_caching_everything_is_what_was_asked_for(stream):
    alive, peak = {}, 0
    for request in stream:
        if request.action == "alloc":
            alive[request.key] = request.nbytes
        else:
            del alive[request.key]
        peak = max(peak, sum(alive.values()))
    profile = replay(stream, policy=NoCaching())
    assert (profile.peak_requested, profile.peak_allocated, profile.peak_reserved) == (peak, peak, peak)
    assert profile.end_reserved == sum(alive.values())
    assert (profile.external_fragmentation, profile.internal_fragmentation) == (0, 0)


def test_gradients_that_outlive_the_step():
    """The set-up's gradient is freed after the next one is born: two at once, whichever step."""
    prefix = [Request("alloc", 0, 30 * MIB, 0)]
    step = [Request("alloc", 1, 30 * MIB, 0), Request("free", 0, 0, 0)]
    profile = replay_steps(prefix, step, {0: 1}, policy=AllocatorPolicy())
    assert (profile.peak_reserved, profile.segments, profile.settled) == (60 * MIB, 2, True)
    # The live gradient is in the second segment, the first, the second again: as after the first step.
    assert profile.steps_replayed == 3


def test_a_leak_never_settles():
    profile = replay_steps([], [Request("alloc", 0, 30 * MIB, 0)], {}, policy=AllocatorPolicy(), max_steps=5)
    assert (profile.settled, profile.steps_replayed, profile.peak_reserved) == (False, 5, 150 * MIB)


def test_blocks_that_a_setting_keeps_from_being_used_again_are_growth():
    """62.5 MiB take a segment of 64, which once it is free is too large to be split (``get_free_block``,
    c10/cuda/CUDACachingAllocator.cpp)."""
    size = 125 * MIB // 2
    step = [Request("alloc", 0, size, 0), Request("free", 0, 0, 0)]
    found = replay_steps([], step, {}, policy=AllocatorPolicy(max_split_size=64 * MIB), max_steps=16)
    assert (found.settled, found.growth, found.peak_reserved) == (False, 64 * MIB, 16 * 64 * MIB)
    plain = replay_steps([], step, {}, policy=AllocatorPolicy(), max_steps=16)
    assert (plain.settled, plain.growth) == (True, 0)


def test_one_segment_more_is_no_growth():
    """A few bytes that stay of each step fill a segment now and then."""
    found = replay_steps([], [Request("alloc", 0, 512, 0)], {}, policy=AllocatorPolicy(), max_steps=64)
    assert (found.settled, found.growth) == (False, 0)


def test_out_of_memory_in_a_later_step_is_named():
    step = [Request("alloc", 0, 512, 0), Request("alloc", 1, 30 * MIB, 0)]
    profile = replay_steps([], step, {}, policy=AllocatorPolicy(), limit_bytes=100 * MIB)
    assert profile.out_of_memory is not None
    assert profile.out_of_memory.event == 7
    assert (profile.steps_replayed, profile.settled) == (4, False)
    assert profile.out_of_memory.reserved == 92 * MIB


@pytest.mark.parametrize(
    ("prefix", "step", "rename", "complaint"),
    [
        ("+0", "-0", {}, "does not replace"),
        ("+0", "-0 +1", {0: 1, 5: 1}, "not alive when the step begins"),
        ("+0", "-0 +1 -1", {0: 1}, "not alive when the step ends"),
        ("+0 +1", "-0 -1 +2", {0: 2, 1: 2}, "in place of several"),
        ("+0", "+1", {0: 1}, "would be lost"),
    ],
)
def test_a_rename_that_does_not_close_the_step_is_refused(prefix, step, rename, complaint):
    def read(text):
        return [Request("alloc" if word[0] == "+" else "free", int(word[1:]), 512, 0) for word in text.split()]

    with pytest.raises(ValueError, match=complaint):
        replay_steps(read(prefix), read(step), rename, policy=AllocatorPolicy())


def test_freeing_what_is_not_alive_is_refused():
    for action in ("free", "record_stream"):
        with pytest.raises(MemplanError, match="event 1 names allocation 7"):
            replay([Request("alloc", 0, 1, 0), Request(action, 7, 0, 0)], policy=AllocatorPolicy())


def test_shared_memory_counts_as_active_but_not_as_allocated():
    """The second 30 MiB are asked for while the first wait for stream 1; nothing is fragmented."""
    stream = [
        Request("alloc", 0, 30 * MIB, 0),
        Request("record_stream", 0, 0, 1),
        Request("free", 0, 0, 0),
        Request("alloc", 1, 30 * MIB, 0),
    ]
    profile = replay(stream, policy=AllocatorPolicy())
    assert (profile.peak_allocated, profile.peak_active, profile.peak_reserved) == (30 * MIB, 60 * MIB, 60 * MIB)
    assert (profile.peak_requested, profile.pending_at_peak) == (60 * MIB, 30 * MIB)
    assert (profile.external_fragmentation, profile.internal_fragmentation) == (0, 0)
    assert replay(stream, policy=NoCaching()).peak_reserved == 30 * MIB


def test_a_step_may_use_a_pool_that_is_kept_between_steps():
    """A graph captured before lends its pool to every step, and the state repeats."""
    pool = [Request("pool_begin", 1, 0, 0), Request("pool_end", 1, 0, 0)]
    step = [
        pool[0],
        Request("alloc", 0, 30 * MIB, 0),
        Request("free", 0, 0, 0),
        pool[1],
        Request("pool_release", 1, 0, 0),
    ]
    profile = replay_steps(pool, step, {}, policy=AllocatorPolicy())
    assert (profile.settled, profile.steps_replayed, profile.peak_reserved) == (True, 2, 30 * MIB)


def test_steps_that_share_blocks_settle():
    """Freed late on purpose: each step's block waits until the next step has synchronized."""
    step = [
        Request("alloc", 0, 30 * MIB, 0),
        Request("record_stream", 0, 0, 1),
        Request("synchronize", 0, 0, 1),
        Request("alloc", 1, 512, 1),
        Request("free", 1, 0, 0),
        Request("free", 0, 0, 0),
    ]
    profile = replay_steps([], step, {}, policy=AllocatorPolicy())
    assert (profile.settled, profile.peak_reserved) == (True, 62 * MIB)


@given(st.one_of(requests(), programs_of_streams()), policies, limits)
def test_the_peak_is_the_fullest_moment_at_the_level_of_the_most_that_is_reserved(stream, policy, limit):
    """Its figures are the allocator's own at that one event, found here by looking at every event."""
    profile = replay(stream, policy=policy, limit_bytes=limit)
    allocator = make_allocator(policy, limit_bytes=limit)
    live, moments = {}, {}
    for index, request in enumerate(stream):
        block = live.get(request.key)
        if request.action == "alloc":
            block = live[request.key] = allocator.allocate(request.nbytes, request.stream)
            if block is None:
                break
            waiting = getattr(allocator, "pending", 0)
            moments[index] = (allocator.reserved, allocator.allocated, allocator.requested, waiting)
        elif request.action == "free":
            allocator.free(live.pop(request.key))
        elif hasattr(allocator, "perform"):
            allocator.perform(request, block if request.action == "record_stream" else None)
    reserved, allocated, requested, pending = moments.get(profile.peak_at, (0, 0, 0, 0))
    figures = (profile.allocated_at_peak, profile.requested_at_peak, profile.pending_at_peak)
    assert figures == (allocated, requested, pending)
    most = max((moment[0] for moment in moments.values()), default=0)
    assert profile.peak_reserved == most <= SAME_LEVEL * reserved
    at_most = {index: moment[1] for index, moment in moments.items() if moment[0] == most}
    assert allocated >= max(at_most.values(), default=0)
    if reserved == most and most:
        assert profile.peak_at == min(index for index, size in at_most.items() if size == allocated)
    free = most - allocated - pending
    assert profile.external_fragmentation * most == pytest.approx(free)
    assert profile.internal_fragmentation * (allocated + pending) == pytest.approx(allocated + pending - requested)


def test_the_peak_is_not_where_the_last_segment_is_taken():
    """32 MiB are reserved for a moment of little; the step then fills them."""
    first = [Request("alloc", 0, 30 * MIB, 0), Request("free", 0, 0, 0), Request("alloc", 1, 512, 0)]
    profile = replay([*first, Request("alloc", 2, 30 * MIB, 0)], policy=AllocatorPolicy())
    assert (profile.peak_reserved, profile.peak_at) == (32 * MIB, 3)
    assert profile.external_fragmentation == 1 - (30 * MIB + 512) / (32 * MIB)
