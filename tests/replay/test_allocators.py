"""The fast allocators against slow ones, and the laws that hold at every moment."""

import dataclasses

import pytest
from hypothesis import given
from hypothesis import strategies as st

from memplan.replay.caching import CachingAllocator, bump_addresses
from memplan.replay.expandable import ExpandableAllocator
from memplan.replay.policy import AllocatorPolicy
from memplan.replay.validate import validate
from memplan.units import GIB, MIB, Bytes
from tests.replay.replay_oracle import NaiveAllocator, NaiveExpandable
from tests.replay.replay_streams import requests

limits = st.one_of(st.none(), st.integers(20, 160).map(lambda mib: mib * MIB))


def play_both(stream, fast, slow, limit=None):
    """Every address, total and failure agrees after every event, and the state is sound."""
    pairs = {}
    for request in stream:
        if request.action == "free":
            if request.key in pairs:
                one, other = pairs.pop(request.key)
                fast.free(one)
                slow.free(other)
        else:
            one, other = fast.allocate(request.nbytes, request.stream), slow.malloc(request.nbytes, request.stream)
            assert (one is None) == (other is None)
            if one is None:
                assert fast.failure.rounded >= request.nbytes
                assert fast.failure.reserved == fast.reserved
            else:
                assert (one.address, one.size) == (other["address"], other["size"])
                pairs[request.key] = one, other
        totals = fast.requested, fast.allocated, fast.reserved
        assert totals == (slow.requested(), slow.allocated(), slow.reserved())
        assert fast.retries == slow.retries
        assert totals[0] <= totals[1] <= totals[2]
        assert validate(fast.layout(), limit_bytes=limit) == ()
    return [one for one, _ in pairs.values()]


@given(requests(), limits)
def test_native_matches_naive(stream, limit):
    play_both(stream, CachingAllocator(AllocatorPolicy(), limit_bytes=limit), NaiveAllocator(limit=limit), limit)


@given(requests(), limits, st.integers(20, 40), st.integers(20, 30), st.integers(20, 32))
def test_native_with_max_split_matches_naive(stream, limit, max_split, rounding, large):
    policy = AllocatorPolicy(
        max_split_size=Bytes(max(max_split, large) * MIB),
        max_non_split_rounding=Bytes(rounding * MIB),
        large_segment_size=Bytes(large * MIB),
    )
    slow = NaiveAllocator(
        limit=limit, max_split=max(max_split, large) * MIB, rounding=rounding * MIB, large=large * MIB
    )
    play_both(stream, CachingAllocator(policy, limit_bytes=limit), slow, limit)


@given(requests(), st.integers(40, 200), st.sampled_from([0.25, 0.5, 0.75]), st.sampled_from([0.25, 0.5, 0.9]))
def test_native_with_garbage_collection_matches_naive(stream, device, fraction, threshold):
    policy = AllocatorPolicy(per_process_memory_fraction=fraction, garbage_collection_threshold=threshold)
    slow = NaiveAllocator(limit=device * MIB, allowed=int(fraction * device * MIB), gc=threshold)
    play_both(stream, CachingAllocator(policy, limit_bytes=device * MIB), slow, device * MIB)


@given(requests(), st.sampled_from([1, 2, 4, 8, 16]))
def test_rounding_up_to_power_of_two_divisions_matches_naive(stream, divisions):
    policy = AllocatorPolicy(roundup_power2_divisions=(divisions,) * 16)
    play_both(stream, CachingAllocator(policy), NaiveAllocator(divisions=divisions))


@given(requests(), limits)
def test_expandable_matches_naive(stream, limit):
    fast = ExpandableAllocator(AllocatorPolicy(expandable_segments=True), limit_bytes=limit, device_bytes=8 * GIB)
    play_both(stream, fast, NaiveExpandable(limit=limit, space=9 * GIB), limit)


@given(requests(), limits, st.booleans())
def test_freeing_everything_and_emptying_the_cache_returns_all_memory(stream, limit, expandable):
    policy = AllocatorPolicy(expandable_segments=expandable)
    fast = (ExpandableAllocator if expandable else CachingAllocator)(policy, limit_bytes=limit)
    live = {}
    for request in stream:
        if request.action == "alloc":
            live[request.key] = fast.allocate(request.nbytes, request.stream)
        elif live[request.key] is not None:
            fast.free(live.pop(request.key))
    for block in live.values():
        if block is not None:
            fast.free(block)
    assert (fast.requested, fast.allocated) == (0, 0)
    fast.empty_cache()
    assert (fast.reserved, fast.segments) == (0, 0)
    assert fast.layout().segments == ()


@given(requests(max_events=30), st.booleans())
def test_adopting_a_layout_continues_like_the_original(stream, small_first):
    """A state written down and taken up again looks the same and serves the next requests at the same addresses."""
    original = CachingAllocator(AllocatorPolicy())
    live = {}
    for request in stream:
        if request.action == "alloc":
            live[request.key] = original.allocate(request.nbytes, request.stream)
        else:
            original.free(live.pop(request.key))
    copy = CachingAllocator(AllocatorPolicy())
    for segment in original.layout().segments:
        copy.adopt(segment)
    assert copy.layout() == original.layout()
    free = [
        (min(block.size, MIB) if segment.small else block.size, segment.stream)
        for segment in original.layout().segments
        for block in segment.blocks
        if block.state == "free"
    ]
    for size, cuda_stream in sorted(free, reverse=not small_first):
        assert original.allocate(size, cuda_stream).address == copy.allocate(size, cuda_stream).address


def test_a_flush_does_not_search_the_pool_again():
    """Two free 20 MiB holes merge nowhere: a request that only a flushed segment would serve is out of memory."""
    allocator = CachingAllocator(AllocatorPolicy(), limit_bytes=64 * MIB)
    first, second = allocator.allocate(30 * MIB, 0), allocator.allocate(30 * MIB, 0)
    allocator.free(first)
    assert allocator.allocate(31 * MIB, 0) is not None
    assert (allocator.retries, allocator.reserved) == (1, 62 * MIB)
    allocator.free(second)
    assert allocator.allocate(40 * MIB, 0) is None
    assert allocator.failure.wanted == 40 * MIB
    assert allocator.reserved == 32 * MIB


def test_throw_on_oom_keeps_the_cache():
    """With the option the request fails before anything cached is released."""
    policy = AllocatorPolicy(throw_on_cudamalloc_oom=True)
    for kept, given_policy in ((30 * MIB, policy), (0, dataclasses.replace(policy, throw_on_cudamalloc_oom=False))):
        allocator = CachingAllocator(given_policy, limit_bytes=40 * MIB)
        allocator.free(allocator.allocate(30 * MIB, 0))
        block = allocator.allocate(32 * MIB, 0)
        assert (block is None) == bool(kept)
        assert allocator.reserved == (kept or 32 * MIB)


def test_expandable_grows_from_its_free_tail():
    """30 MiB need two units of 20 MiB; the next 15 MiB use the 10 MiB left over and one more unit."""
    allocator = expandable()
    allocator.allocate(30 * MIB, 0)
    assert allocator.reserved == 40 * MIB
    block = allocator.allocate(15 * MIB, 0)
    assert (block.address, allocator.reserved, allocator.segments) == (30 * MIB, 60 * MIB, 1)


@pytest.mark.parametrize(
    ("device_bytes", "address"),
    # 9/8 of 200 MiB of address space leave 120 MiB behind the live blocks; 9/8 of 160 MiB leave 80 MiB: a new space.
    [(200 * MIB, 100 * MIB), (160 * MIB, 180 * MIB)],
)
def test_expandable_returns_inner_units_when_full(device_bytes, address):
    """A hole of 60 MiB between live blocks goes back to the device and serves a larger request elsewhere."""
    policy = AllocatorPolicy(expandable_segments=True)
    allocator = ExpandableAllocator(policy, limit_bytes=160 * MIB, device_bytes=device_bytes)
    low, hole, _high = (allocator.allocate(size * MIB, 0) for size in (20, 60, 20))
    allocator.free(hole)
    big = allocator.allocate(100 * MIB, 0)
    assert big is not None
    assert big.address - low.address == address
    assert (allocator.reserved, allocator.retries) == (140 * MIB, 1)
    assert allocator.segments == (1 if address == 100 * MIB else 2)
    assert validate(allocator.layout()) == ()


@pytest.mark.parametrize("kind", [CachingAllocator, ExpandableAllocator])
def test_zero_bytes_take_nothing(kind):
    allocator = kind(AllocatorPolicy())
    allocator.free(allocator.allocate(0, 0))
    assert (allocator.reserved, allocator.layout().segments) == (0, ())


def test_an_oversize_block_serves_requests_nearly_of_its_size():
    """With 20 MiB of tolerance, a free block of 60 MiB serves 40 MiB and 512 bytes, not 40 MiB; and it is not split."""
    for nbytes, reused in ((40 * MIB, False), (40 * MIB + 512, True)):
        allocator = CachingAllocator(AllocatorPolicy(max_split_size=Bytes(20 * MIB)), place=bump_addresses(0))
        allocator.free(allocator.allocate(60 * MIB, 0))
        block = allocator.allocate(nbytes, 0)
        assert (block.address == 0) == reused
        assert allocator.allocated == (60 if reused else 40) * MIB


def test_too_little_oversize_memory_leads_to_a_full_flush():
    """Releasing the 20 MiB block would make room for 22 MiB, but less than the 21 MiB asked for: everything goes."""
    allocator = CachingAllocator(AllocatorPolicy(max_split_size=Bytes(20 * MIB)), limit_bytes=24 * MIB)
    for block in [allocator.allocate(1, 0), allocator.allocate(MIB + 1, 0)]:
        allocator.free(block)
    assert allocator.allocate(21 * MIB, 0) is not None
    assert (allocator.retries, allocator.reserved) == (1, 22 * MIB)


def test_of_several_oversize_blocks_the_largest_go_and_no_more_than_needed():
    """50 MiB are wanted of 26, 30 and 34: the two larger ones go."""
    allocator = CachingAllocator(AllocatorPolicy(max_split_size=Bytes(20 * MIB)), limit_bytes=100 * MIB)
    for block in [allocator.allocate(size * MIB, 0) for size in (26, 30, 34)]:
        allocator.free(block)
    assert allocator.allocate(50 * MIB, 0) is not None
    assert (allocator.retries, allocator.reserved) == (0, 76 * MIB)


def expandable(limit_mib=None):
    limit = None if limit_mib is None else limit_mib * MIB
    policy, place = AllocatorPolicy(expandable_segments=True), bump_addresses(0)
    return ExpandableAllocator(policy, limit_bytes=limit, device_bytes=8 * GIB, place=place)


def test_expandable_prefers_a_larger_hole_to_its_growing_end():
    """Holes of 12 MiB at 0 and 6 MiB at the end, behind which the segment can grow: 4 MiB go to the first."""
    allocator = expandable()
    first, _ = allocator.allocate(12 * MIB, 0), allocator.allocate(2 * MIB, 0)
    allocator.free(first)
    assert allocator.allocate(4 * MIB, 0).address == 0


def test_expandable_prefers_the_lower_of_equal_holes():
    allocator = expandable()
    blocks = [allocator.allocate(2 * MIB, 0) for _ in range(5)]
    allocator.free(blocks[3])
    allocator.free(blocks[1])
    assert allocator.allocate(2 * MIB, 0).address == blocks[1].address


def test_expandable_fills_unmapped_gaps_before_it_grows():
    allocator = expandable(limit_mib=160)
    _, hole, _ = (allocator.allocate(size * MIB, 0) for size in (20, 60, 20))
    allocator.free(hole)
    assert allocator.allocate(70 * MIB, 0).address == 100 * MIB
    assert (allocator.retries, allocator.reserved) == (1, 120 * MIB)
    assert allocator.allocate(30 * MIB, 0).address == 20 * MIB
    assert (allocator.retries, allocator.reserved) == (1, 160 * MIB)


def two_blocks(policy=None, place=None):
    """Two live segments of 30 MiB each."""
    allocator = CachingAllocator(policy or AllocatorPolicy(), limit_bytes=400 * MIB, place=place)
    return allocator, allocator.allocate(30 * MIB, 0), allocator.allocate(30 * MIB, 0)


def test_fingerprints_ignore_addresses_and_nothing_else():
    allocator, low, high = two_blocks()
    state = allocator.fingerprint({1: low, 2: high})
    elsewhere, other_low, other_high = two_blocks(place=bump_addresses(1 << 40))
    assert elsewhere.fingerprint({1: other_low, 2: other_high}) == state
    assert allocator.fingerprint({1: high, 2: low}) != state
    assert allocator.fingerprint({1: low}) != state
    unnamed = allocator.fingerprint({})
    allocator.free(low)
    assert allocator.fingerprint({}) != unnamed


def test_fingerprints_hold_the_age_of_free_memory_where_it_matters():
    """A search that finds its block elsewhere changes nothing but the age of what stays free."""
    collecting = AllocatorPolicy(per_process_memory_fraction=0.5, garbage_collection_threshold=0.5)
    for policy, same in ((collecting, False), (AllocatorPolicy(), True)):
        allocator, low, _ = two_blocks(policy)
        passing = allocator.allocate(3 * MIB, 0)
        allocator.free(low)
        before = allocator.fingerprint({})
        allocator.free(passing)
        allocator.allocate(3 * MIB, 0)
        assert (allocator.fingerprint({}) == before) == same
