"""Best fit with compaction: nothing overlaps, nothing is lost, and a bound is kept."""

from hypothesis import given
from hypothesis import strategies as st

from memplan.replay.compacting import GROWTH, CompactingAllocator
from memplan.units import MIB
from tests.replay.overlaps import no_overlap
from tests.replay.replay_streams import requests

shares = st.sampled_from([0.0, 0.05, 0.2, 0.5, 1.0])
limits = st.one_of(st.none(), st.integers(20, 160).map(lambda mib: mib * MIB))


def rounded(nbytes):
    return -(-nbytes // 512) * 512


@given(requests(), shares, limits)
def test_live_blocks_never_overlap_and_compaction_loses_nothing(stream, share, limit):
    allocator, live = CompactingAllocator(compact_at=share, limit_bytes=limit), {}
    for action, key, nbytes, number in stream:
        if action == "free":
            if key in live:
                allocator.free(live.pop(key)[0])
        else:
            block = allocator.allocate(nbytes, number)
            if block is None:
                assert limit is not None
                continue
            live[key] = block, nbytes
        blocks = [block for block, _ in live.values()]
        assert no_overlap(blocks)
        # Whatever was moved, every block still has the size that it was born with.
        assert [block.size for block in blocks] == [rounded(size) for _, size in live.values()]
        assert allocator.requested == sum(size for _, size in live.values())
        assert allocator.allocated == sum(block.size for block in blocks)
        assert allocator.requested <= allocator.allocated <= allocator.reserved
        assert limit is None or allocator.reserved <= limit


@given(requests(streams=1))
def test_with_threshold_0_the_arena_is_as_large_as_the_peak(stream):
    """Compacting whenever enough is free in all, it needs the most bytes ever alive, up to its unit of growth."""
    allocator, live, peak = CompactingAllocator(compact_at=0.0), {}, 0
    for action, key, nbytes, number in stream:
        if action == "free":
            allocator.free(live.pop(key))
        else:
            live[key] = allocator.allocate(nbytes, number)
        peak = max(peak, sum(block.size for block in live.values()))
    assert peak <= allocator.reserved < peak + GROWTH


@given(requests(streams=1))
def test_with_threshold_1_nothing_with_a_live_block_moves(stream):
    allocator, live = CompactingAllocator(compact_at=1.0), {}
    for action, key, nbytes, number in stream:
        if action == "free":
            allocator.free(live.pop(key))
        else:
            live[key] = allocator.allocate(nbytes, number)
    assert allocator.moved_bytes == 0


def test_compaction_moves_what_lies_behind_a_gap_and_counts_it():
    allocator = CompactingAllocator(compact_at=0.2)
    a, b, c, d = (allocator.allocate(10 * MIB, 0) for _ in range(4))
    allocator.free(a)
    allocator.free(c)
    assert allocator.allocate(20 * MIB, 0) is not None
    assert (allocator.compactions, allocator.moved_bytes, allocator.reserved) == (1, 20 * MIB, 40 * MIB)
    assert (b.address, d.address) == (0, 10 * MIB)


def test_what_lies_before_the_first_gap_stays_and_is_not_counted():
    allocator = CompactingAllocator(compact_at=0.2)
    _, b, _, d = (allocator.allocate(10 * MIB, 0) for _ in range(4))
    allocator.free(b)
    allocator.free(d)
    assert allocator.allocate(20 * MIB, 0) is not None
    assert (allocator.compactions, allocator.moved_bytes, allocator.reserved) == (1, 10 * MIB, 40 * MIB)


def test_below_the_threshold_it_grows_instead():
    allocator = CompactingAllocator(compact_at=0.9)
    blocks = [allocator.allocate(10 * MIB, 0) for _ in range(4)]
    allocator.free(blocks[0])
    allocator.free(blocks[2])
    allocator.allocate(20 * MIB, 0)
    assert (allocator.compactions, allocator.reserved) == (0, 60 * MIB)


def test_a_full_device_compacts_whatever_the_threshold():
    allocator = CompactingAllocator(compact_at=0.9, limit_bytes=40 * MIB)
    blocks = [allocator.allocate(10 * MIB, 0) for _ in range(4)]
    allocator.free(blocks[0])
    allocator.free(blocks[2])
    assert allocator.allocate(20 * MIB, 0) is not None
    assert (allocator.compactions, allocator.reserved) == (1, 40 * MIB)
    assert allocator.allocate(512, 0) is None
    assert allocator.failure.allocated == 40 * MIB


def test_a_gap_that_would_leave_a_splinter_is_passed_over():
    """Tightest fit would leave 512 KiB that no large request can use; the next gap leaves 2 MiB."""
    allocator = CompactingAllocator(compact_at=1.0)
    tight, fence, roomy, _ = (allocator.allocate(n, 0) for n in (8 * MIB + MIB // 2, MIB, 10 * MIB, MIB))
    allocator.free(tight)
    allocator.free(roomy)
    assert allocator.allocate(8 * MIB, 0).address == fence.address + fence.size
