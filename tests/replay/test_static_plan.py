"""Planned blocks beside the online allocator."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from memplan.errors import MemplanError
from memplan.replay.caching import CachingAllocator
from memplan.replay.policy import AllocatorPolicy
from memplan.replay.static_plan import ARENA_ADDRESS, PlannedAllocator, Slot
from memplan.units import MIB
from tests.replay.overlaps import no_overlap
from tests.replay.replay_streams import requests


@given(requests(), st.data())
def test_blocks_never_overlap_and_totals_add_up(stream, data):
    """A plan that gives each allocation of the stretch bytes of its own; some are unplanned, some planned too small."""
    slots, end = [], 0
    for action, _, nbytes, _ in stream:
        if action == "alloc":
            size = data.draw(st.sampled_from([0, nbytes // 2, nbytes]))
            slots.append(Slot(offset=end, size=-(-size // 512) * 512) if size else None)
            end += slots[-1].size if slots[-1] else 0
    allocator, live = PlannedAllocator(CachingAllocator(AllocatorPolicy()), arena_bytes=end), {}
    allocator.begin(slots)
    for action, key, nbytes, number in stream:
        if action == "free":
            allocator.free(live.pop(key))
        else:
            live[key] = allocator.allocate(nbytes, number)
        assert no_overlap(live.values())
        assert allocator.allocated == sum(block.size for block in live.values())
        assert allocator.requested == sum(block.requested for block in live.values())
        assert allocator.requested <= allocator.allocated <= allocator.reserved


def test_without_a_plan_it_is_pytorchs_allocator():
    planned, online = (
        PlannedAllocator(CachingAllocator(AllocatorPolicy()), arena_bytes=0),
        CachingAllocator(AllocatorPolicy()),
    )
    for size in (1, MIB, 5 * MIB, 40 * MIB):
        assert planned.allocate(size, 0).size == online.allocate(size, 0).size
    assert planned.reserved == online.reserved


def test_a_request_goes_to_its_slot_or_if_larger_online():
    allocator = PlannedAllocator(CachingAllocator(AllocatorPolicy()), arena_bytes=4 * MIB)
    slots = [Slot(offset=2 * MIB, size=MIB), Slot(offset=0, size=MIB)]
    allocator.begin(slots)
    first, second = allocator.allocate(MIB, 0), allocator.allocate(2 * MIB, 0)
    assert first.address == ARENA_ADDRESS + 2 * MIB
    assert second.address < ARENA_ADDRESS
    assert (allocator.reserved, allocator.segments) == (4 * MIB + 20 * MIB, 2)


def test_a_planned_block_must_not_outlive_its_stretch():
    allocator = PlannedAllocator(CachingAllocator(AllocatorPolicy()), arena_bytes=MIB)
    allocator.begin([Slot(offset=0, size=MIB)])
    block = allocator.allocate(MIB, 0)
    with pytest.raises(MemplanError, match="outlive"):
        allocator.begin([])
    allocator.free(block)
    allocator.begin([])


def test_an_arena_larger_than_the_device_fails():
    allocator = PlannedAllocator(CachingAllocator(AllocatorPolicy()), arena_bytes=10 * MIB, limit_bytes=8 * MIB)
    allocator.begin([Slot(offset=0, size=MIB)])
    assert allocator.allocate(MIB, 0) is None
    assert allocator.failure.wanted == 10 * MIB
