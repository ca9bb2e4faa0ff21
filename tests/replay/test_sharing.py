"""Blocks that several streams use, private pools and pinned memory, against the slow allocators."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from memplan.errors import MemplanError
from memplan.replay.caching import CachingAllocator
from memplan.replay.expandable import ExpandableAllocator
from memplan.replay.pinned import PinnedAllocator
from memplan.replay.policy import AllocatorPolicy, PinnedPolicy
from memplan.replay.records import ALL_STREAMS, Request
from memplan.replay.validate import validate
from memplan.units import GIB, MIB, Bytes
from tests.replay.replay_oracle import NaiveAllocator, NaiveExpandable, NaiveHost
from tests.replay.replay_streams import programs_of_streams, sizes

limits = st.one_of(st.none(), st.integers(20, 160).map(lambda mib: mib * MIB))
few_sizes = st.sampled_from([512, MIB, 3 * MIB, 9 * MIB, 12 * MIB, 21 * MIB, 30 * MIB])
programs = st.one_of(programs_of_streams(), programs_of_streams(streams=2, allocation_sizes=few_sizes))


def perform_slowly(slow, request, block):
    match request.action:
        case "record_stream":
            slow.record_stream(block, request.stream)
        case "synchronize":
            slow.synchronize(request.stream)
        case "pool_begin":
            slow.begin_pool(request.key)
        case "pool_end":
            slow.end_pool(request.key)
        case "pool_release":
            slow.release_pool(request.key)
        case "empty_cache":
            slow.empty_cache(request.key)


def play_both(stream, fast, slow):
    """Every address, total and failure agrees after every request."""
    pairs = {}
    for request in stream:
        if request.action == "alloc":
            one, other = fast.allocate(request.nbytes, request.stream), slow.malloc(request.nbytes, request.stream)
            assert (one is None) == (other is None)
            if one is not None:
                pairs[request.key] = one, other
                yield one, other
        elif request.action == "free":
            one, other = pairs.pop(request.key, (None, None))
            if one is not None:
                fast.free(one)
                slow.free(other)
        elif request.action != "record_stream" or request.key in pairs:
            one, other = pairs.get(request.key, (None, None)) if request.action == "record_stream" else (None, None)
            fast.perform(request, one)
            perform_slowly(slow, request, other)
        totals = fast.requested, fast.allocated, fast.allocated + fast.pending, fast.reserved
        assert totals == (slow.requested(), slow.allocated(), slow.active(), slow.reserved())
        assert fast.retries == slow.retries
        assert fast.requested <= fast.allocated + fast.pending <= fast.reserved
        yield None


def play_on_device(stream, fast, slow, limit=None):
    """Besides, the state is sound, and pending is what the slow one still holds."""
    for pair in play_both(stream, fast, slow):
        if pair is not None:
            one, other = pair
            assert (one.address, one.size) == (other["address"], other["size"])
            continue
        layout = fast.layout()
        assert validate(layout, limit_bytes=limit) == ()
        blocks = [(segment.pool, block) for segment in layout.segments for block in segment.blocks]
        assert sorted((owner, b.address, b.state == "allocated") for owner, b in blocks if b.state != "free") == sorted(
            (b["owner"], b["address"], b["alive"]) for b in slow.live
        )


@given(programs, limits, st.sampled_from([None, 20, 30]), st.integers(20, 30))
def test_native_matches_naive(stream, limit, max_split, large):
    max_split = max_split and max(max_split, large)
    policy = AllocatorPolicy(max_split_size=max_split and Bytes(max_split * MIB), large_segment_size=Bytes(large * MIB))
    slow = NaiveAllocator(limit=limit, max_split=max_split and max_split * MIB, large=large * MIB)
    play_on_device(stream, CachingAllocator(policy, limit_bytes=limit), slow, limit)


@given(
    programs,
    st.integers(40, 200),
    st.sampled_from([0.25, 0.5, 0.75]),
    st.sampled_from([0.25, 0.5, 0.9]),
    st.sampled_from([0, 1, 4]),
)
def test_native_with_garbage_collection_matches_naive(stream, device, fraction, threshold, divisions):
    policy = AllocatorPolicy(
        per_process_memory_fraction=fraction,
        garbage_collection_threshold=threshold,
        roundup_power2_divisions=(divisions,) * 16,
    )
    slow = NaiveAllocator(limit=device * MIB, allowed=int(fraction * device * MIB), gc=threshold, divisions=divisions)
    play_on_device(stream, CachingAllocator(policy, limit_bytes=device * MIB), slow, device * MIB)


@given(programs, st.integers(40, 200), limits)
def test_native_that_throws_matches_naive(stream, device, limit):
    policy = AllocatorPolicy(throw_on_cudamalloc_oom=True)
    fast = CachingAllocator(policy, limit_bytes=limit, device_bytes=device * MIB)
    play_on_device(stream, fast, NaiveAllocator(limit=limit, reject_above=device * MIB), limit)


@given(programs, limits, st.sampled_from([1.0, 0.01]), st.sampled_from([None, 20, 30]), st.sampled_from([0, 4]))
def test_expandable_matches_naive(stream, limit, fraction, max_split, divisions):
    policy = AllocatorPolicy(
        expandable_segments=True,
        per_process_memory_fraction=fraction,
        max_split_size=max_split and Bytes(max_split * MIB),
        roundup_power2_divisions=(divisions,) * 16,
    )
    fast = ExpandableAllocator(policy, limit_bytes=limit, device_bytes=8 * GIB)
    slow = NaiveExpandable(
        space=9 * GIB,
        limit=limit,
        allowed=int(fraction * 8 * GIB) if fraction < 1 else None,
        max_split=max_split and max_split * MIB,
        divisions=divisions,
    )
    play_on_device(stream, fast, slow, limit)


host_sizes = st.one_of(st.integers(1, 40), st.integers(4000, 9000), st.sampled_from([MIB, MIB + 1, 3 * MIB]), sizes)
host_programs = programs_of_streams(allocation_sizes=host_sizes, pools=False)
bounds = st.sampled_from([None, 0, 20, 5000, 2 * MIB])


@given(
    programs_of_streams(allocation_sizes=host_sizes, pools=False),
    bounds,
    bounds,
    st.sampled_from([0, MIB, 4 * MIB]),
    limits,
)
def test_pinned_memory_matches_naive(stream, round_up_to, keep_up_to, reserve, limit):
    policy = PinnedPolicy(max_round_threshold=round_up_to, max_cached_size=keep_up_to, reserve_segment_size=reserve)
    slow = NaiveHost(limit=limit, round_up_to=round_up_to, keep_up_to=keep_up_to, reserve=reserve)
    for pair in play_both(stream, PinnedAllocator(policy, limit_bytes=limit), slow):
        assert pair is None or pair[0].size == pair[1]["size"]


def perform(allocator, action, key=0, stream=0, block=None):
    allocator.perform(Request(action, key, 0, stream), block)


def shared_block(allocator, size=30 * MIB, stream=1):
    block = allocator.allocate(size, 0)
    perform(allocator, "record_stream", stream=stream, block=block)
    return block


def states(allocator):
    return [block.state for segment in allocator.layout().segments for block in segment.blocks]


@pytest.mark.parametrize("kind", [CachingAllocator, ExpandableAllocator])
def test_a_freed_block_waits_for_the_stream_that_uses_it(kind):
    """Not allocated any more, yet not free: the same size needs new memory until the stream has caught up."""
    allocator = kind(AllocatorPolicy())
    block = shared_block(allocator, 20 * MIB)
    allocator.free(block)
    assert (allocator.allocated, allocator.pending, allocator.requested) == (0, 20 * MIB, 20 * MIB)
    assert states(allocator) == ["pending"]
    other = allocator.allocate(20 * MIB, 0)
    assert (other.address != block.address, allocator.reserved) == (True, 40 * MIB)
    perform(allocator, "synchronize", stream=1)
    # Only a later allocation looks.
    assert allocator.pending == 20 * MIB
    assert allocator.allocate(20 * MIB, 0).address == block.address
    assert (allocator.pending, allocator.reserved) == (0, 40 * MIB)


def test_use_on_its_own_stream_needs_no_waiting():
    allocator = CachingAllocator(AllocatorPolicy())
    allocator.free(shared_block(allocator, stream=0))
    assert (allocator.pending, states(allocator)) == (0, ["free"])


def test_events_of_one_stream_complete_in_order():
    """Work that follows a synchronization keeps the second block back, not the first."""
    allocator = CachingAllocator(AllocatorPolicy())
    first, second = shared_block(allocator), shared_block(allocator)
    allocator.free(first)
    perform(allocator, "synchronize", stream=1)
    allocator.allocate(512, 1)
    allocator.free(second)
    allocator.allocate(512, 0)
    assert [state for state in states(allocator) if state != "allocated"][:2] == ["free", "pending"]


def test_an_event_on_an_idle_stream_is_complete_at_once():
    allocator = CachingAllocator(AllocatorPolicy())
    block = shared_block(allocator)
    perform(allocator, "synchronize", stream=ALL_STREAMS)
    allocator.free(block)
    assert states(allocator) == ["pending"]
    assert allocator.allocate(30 * MIB, 0).address == block.address


def test_a_full_device_waits_for_all_streams_but_does_not_search_again():
    """The 30 MiB that waiting frees go back to the device whole; a part of a segment would not serve at all."""
    allocator = CachingAllocator(AllocatorPolicy(), limit_bytes=60 * MIB)
    held = [shared_block(allocator), allocator.allocate(30 * MIB, 0)]
    allocator.free(held[0])
    assert allocator.allocate(30 * MIB, 0) is not None
    assert (allocator.retries, allocator.pending, allocator.reserved) == (1, 0, 60 * MIB)
    full = CachingAllocator(AllocatorPolicy(), limit_bytes=20 * MIB)
    small, _ = shared_block(full, 4 * MIB), full.allocate(16 * MIB, 0)
    full.free(small)
    assert full.allocate(4 * MIB, 0) is None
    assert (full.retries, full.pending) == (1, 0)
    assert full.allocate(4 * MIB, 0).address == small.address


def test_a_private_pool_keeps_the_most_it_needed_until_it_is_released_and_flushed():
    allocator = CachingAllocator(AllocatorPolicy())
    perform(allocator, "pool_begin", key=7)
    inside = allocator.allocate(30 * MIB, 0)
    perform(allocator, "pool_end", key=7)
    allocator.free(inside)
    outside = allocator.allocate(30 * MIB, 0)
    assert outside.address != inside.address
    assert {segment.pool for segment in allocator.layout().segments} == {0, 7}
    perform(allocator, "empty_cache")
    assert allocator.reserved == 60 * MIB
    perform(allocator, "pool_release", key=7)
    assert allocator.reserved == 60 * MIB
    perform(allocator, "empty_cache", key=7)
    assert allocator.reserved == 30 * MIB
    # Its name is free again.
    perform(allocator, "pool_begin", key=7)
    assert allocator.allocate(30 * MIB, 0).address not in {inside.address, outside.address}


def test_a_pool_is_kept_as_long_as_any_graph_uses_it():
    allocator = CachingAllocator(AllocatorPolicy())
    for _ in range(2):
        perform(allocator, "pool_begin", key=1)
        allocator.free(allocator.allocate(30 * MIB, 0))
        perform(allocator, "pool_end", key=1)
    assert allocator.reserved == 30 * MIB
    for kept in (30 * MIB, 0):
        perform(allocator, "pool_release", key=1)
        allocator.empty_cache()
        assert allocator.reserved == kept


def test_the_pool_begun_last_counts():
    allocator = CachingAllocator(AllocatorPolicy())
    for pool in (1, 2):
        perform(allocator, "pool_begin", key=pool)
    owners = [allocator.allocate(30 * MIB, 0).pool.owner]
    for pool in (1, 2):
        perform(allocator, "pool_end", key=pool)
        owners.append(allocator.allocate(30 * MIB, 0).pool.owner)
    assert owners == [2, 2, 0]


def test_a_capture_defers_what_streams_share_and_never_flushes():
    """Uses seen by the capture alone are over when it ends; a use from before still needs its stream."""
    allocator = CachingAllocator(AllocatorPolicy(), limit_bytes=90 * MIB)
    before = shared_block(allocator)
    perform(allocator, "pool_begin", key=1)
    inside = shared_block(allocator)
    for block in (before, inside):
        allocator.free(block)
    perform(allocator, "synchronize", stream=ALL_STREAMS)
    perform(allocator, "record_stream", stream=1, block=allocator.allocate(512, 0))
    assert allocator.pending == 60 * MIB
    assert allocator.allocate(40 * MIB, 0) is None
    assert (allocator.retries, allocator.reserved) == (0, 62 * MIB)
    perform(allocator, "pool_end", key=1)
    allocator.allocate(512, 0)
    assert allocator.pending == 30 * MIB
    assert [state for state in states(allocator) if state == "pending"] == ["pending"]


def test_a_use_seen_by_a_capture_stays_the_captures():
    allocator = CachingAllocator(AllocatorPolicy())
    perform(allocator, "pool_begin", key=1)
    block = shared_block(allocator)
    perform(allocator, "pool_end", key=1)
    perform(allocator, "record_stream", stream=1, block=block)
    perform(allocator, "pool_begin", key=2)
    allocator.free(block)
    perform(allocator, "pool_end", key=2)
    allocator.allocate(512, 0)
    assert allocator.pending == 0


def test_searches_in_private_pools_age_nothing():
    """30 MiB freed early and 32 MiB freed late are of one age if only a private pool was searched in between."""
    for pool, left in ((3, 0), (0, 32 * MIB)):
        policy = AllocatorPolicy(per_process_memory_fraction=0.5, garbage_collection_threshold=0.5)
        allocator = CachingAllocator(policy, limit_bytes=400 * MIB)
        early, late = allocator.allocate(30 * MIB, 0), allocator.allocate(32 * MIB, 0)
        allocator.free(early)
        if pool:
            perform(allocator, "pool_begin", key=pool)
        allocator.allocate(40 * MIB, 0)
        if pool:
            perform(allocator, "pool_end", key=pool)
        allocator.free(late)
        allocator.allocate(60 * MIB, 0)
        free = [block for segment in allocator.layout().segments for block in segment.blocks if block.state == "free"]
        assert sum(block.size for block in free if block.size in {30 * MIB, 32 * MIB}) == left


@pytest.mark.parametrize(
    ("actions", "complaint"),
    [
        ("pool_begin:0", "default one"),
        ("pool_begin:1 pool_begin:1", "open already"),
        ("pool_end:1", "not open"),
        ("pool_release:1", "no user"),
        ("pool_begin:1 pool_end:1 pool_release:1 pool_begin:1", "has been released"),
        ("pool_begin:1 pool_end:1 pool_release:1 pool_begin:2 empty_cache:1", "cannot be emptied"),
    ],
)
def test_pools_out_of_turn_are_refused(actions, complaint):
    allocator = CachingAllocator(AllocatorPolicy())
    *before, last = [action.split(":") for action in actions.split()]
    for action, key in before:
        perform(allocator, action, key=int(key))
    with pytest.raises(MemplanError, match=complaint):
        perform(allocator, last[0], key=int(last[1]))


def test_an_adopted_pending_block_comes_back_with_a_flush():
    original = CachingAllocator(AllocatorPolicy())
    original.free(shared_block(original))
    copy = CachingAllocator(AllocatorPolicy())
    for segment in original.layout().segments:
        copy.adopt(segment)
    assert copy.layout() == original.layout()
    perform(copy, "synchronize", stream=1)
    copy.allocate(512, 0)
    assert copy.pending == 30 * MIB
    copy.empty_cache()
    assert (copy.pending, copy.reserved) == (0, 2 * MIB)


@pytest.mark.parametrize(
    ("nbytes", "size"), [(1, 1), (3, 4), (4096, 4096), (1100 * MIB, 2048 * MIB), (2048 * MIB + 1, 4096 * MIB)]
)
def test_pinned_blocks_are_powers_of_two(nbytes, size):
    assert PinnedPolicy().round_size(nbytes) == size


def test_pinned_blocks_come_back_youngest_first_if_large_enough():
    """With the threshold at 0, blocks of 60, 50 and 40 bytes share the list of 33 to 64."""
    allocator = PinnedAllocator(PinnedPolicy(max_round_threshold=Bytes(0)))
    blocks = {nbytes: allocator.allocate(nbytes, 0) for nbytes in (60, 50, 40)}
    for block in blocks.values():
        allocator.free(block)
    assert allocator.allocate(45, 0) is blocks[50]
    assert allocator.allocate(33, 0) is blocks[40]
    assert allocator.allocate(61, 0).size == 61
    assert allocator.reserved == 60 + 50 + 40 + 61


def test_pinned_memory_waits_for_a_stream_and_ignores_pools():
    allocator = PinnedAllocator(PinnedPolicy())
    perform(allocator, "pool_begin", key=1)
    block = allocator.allocate(MIB, 0)
    perform(allocator, "record_stream", stream=0, block=block)
    allocator.free(block)
    assert (allocator.allocated, allocator.pending) == (0, MIB)
    assert allocator.allocate(MIB, 0) is not block
    perform(allocator, "synchronize", stream=0)
    perform(allocator, "empty_cache")
    assert (allocator.pending, allocator.reserved, allocator.segments) == (0, MIB, 1)


def test_the_reserve_segment_is_pinned_whole_and_never_given_back():
    allocator = PinnedAllocator(PinnedPolicy(reserve_segment_size=Bytes(MIB)), limit_bytes=3 * MIB)
    first = [allocator.allocate(MIB // 2, 0) for _ in range(2)]
    assert (allocator.reserved, allocator.segments) == (MIB, 1)
    more = allocator.allocate(MIB, 0)
    assert (allocator.reserved, allocator.segments) == (2 * MIB, 2)
    for block in (*first, more):
        allocator.free(block)
    allocator.empty_cache()
    assert (allocator.reserved, allocator.segments) == (MIB, 1)
    # What the segment had given is lost, so this is pinned anew, and the next does not fit any more.
    assert allocator.allocate(2 * MIB, 0).size == 2 * MIB
    assert allocator.allocate(1, 0) is None
    assert (allocator.failure.wanted, allocator.failure.reserved) == (1, 3 * MIB)
