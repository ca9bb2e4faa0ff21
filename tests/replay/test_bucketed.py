"""The pool of fixed block sizes: its laws, and where its blocks lie."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from memplan.replay.bucketed import BucketedAllocator
from memplan.simulate.play import DeviceTraffic
from memplan.units import MIB
from tests.replay.overlaps import no_overlap
from tests.replay.replay_streams import requests

buckets = st.lists(st.integers(512, 40 * MIB), min_size=0, max_size=6, unique=True).map(sorted)
limits = st.one_of(st.none(), st.integers(20, 160).map(lambda mib: mib * MIB))


def watched(sizes, limit=None):
    allocator, traffic = BucketedAllocator(sizes, limit_bytes=limit), DeviceTraffic()
    allocator.observers = (traffic,)
    return allocator, traffic


@given(requests(), buckets, limits)
def test_live_blocks_never_overlap_and_totals_add_up(stream, sizes, limit):
    (allocator, traffic), live = watched(sizes, limit), {}
    for action, key, nbytes, number in stream:
        if action == "free":
            if key in live:
                allocator.free(live.pop(key))
        else:
            block = allocator.allocate(nbytes, number)
            if block is None:
                assert allocator.failure.reserved == allocator.reserved
                continue
            assert block.size >= nbytes
            live[key] = block
        assert no_overlap(live.values())
        assert allocator.allocated == sum(block.size for block in live.values())
        assert allocator.requested == sum(block.requested for block in live.values())
        assert allocator.requested <= allocator.allocated <= allocator.reserved
        assert limit is None or allocator.reserved <= limit
        assert allocator.segments == traffic.allocations - traffic.frees


def test_a_request_gets_the_smallest_bucket_that_holds_it():
    allocator = BucketedAllocator([MIB, 4 * MIB])
    assert [allocator.allocate(n, 0).size for n in (1, MIB, MIB + 1, 4 * MIB)] == [MIB, MIB, 4 * MIB, 4 * MIB]


def test_beyond_the_largest_bucket_sizes_are_rounded_to_2_mib_and_reused():
    allocator, traffic = watched([MIB])
    block = allocator.allocate(33 * MIB, 0)
    assert (block.size, allocator.reserved) == (34 * MIB, 34 * MIB)
    allocator.free(block)
    assert allocator.allocate(34 * MIB, 0).address == block.address
    assert traffic.allocations == 1


def test_a_free_block_never_serves_another_bucket():
    allocator = BucketedAllocator([10 * MIB, 20 * MIB])
    allocator.free(allocator.allocate(20 * MIB, 0))
    allocator.allocate(10 * MIB, 0)
    assert allocator.reserved == 30 * MIB


def test_a_full_device_gives_empty_slabs_back_first():
    allocator, traffic = watched([10 * MIB, 20 * MIB], 25 * MIB)
    allocator.free(allocator.allocate(20 * MIB, 0))
    assert allocator.allocate(10 * MIB, 0) is not None
    assert (allocator.retries, traffic.frees, allocator.reserved) == (1, 1, 10 * MIB)


@pytest.mark.parametrize("limit", [None, 400 * MIB])
def test_equal_fingerprints_mean_equal_futures(limit):
    """Two pools with different pasts but the same blocks waiting serve the same requests with as many slabs."""
    first, second = (BucketedAllocator([MIB, 2 * MIB], limit_bytes=limit) for _ in range(2))
    kept = [first.allocate(MIB, 0), second.allocate(MIB, 0)]
    assert first.fingerprint({0: kept[0]}) == second.fingerprint({0: kept[1]})
    second.free(second.allocate(2 * MIB, 0))
    assert first.fingerprint({0: kept[0]}) != second.fingerprint({0: kept[1]})
