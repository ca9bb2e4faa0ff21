"""The validator finds every kind of damage, and nothing in a sound state."""

import dataclasses

import pytest
from hypothesis import given, settings

from memplan.replay.caching import CachingAllocator
from memplan.replay.policy import AllocatorPolicy
from memplan.replay.records import BlockLayout, MemoryLayout, SegmentLayout
from memplan.replay.validate import Fault, validate
from tests.replay.replay_streams import requests

change = dataclasses.replace


def block(address, size, requested):
    return BlockLayout(address=address, size=size, requested=requested, state="allocated" if requested else "free")


SOUND = MemoryLayout(
    segments=(
        SegmentLayout(address=0, size=2048, stream=0, small=True, blocks=(block(0, 512, 3), block(512, 1536, 0))),
        SegmentLayout(address=4096, size=1024, stream=1, small=True, blocks=(block(4096, 1024, 1000),)),
    ),
    requested=1003,
    allocated=1536,
    reserved=3072,
)


def with_blocks(*blocks):
    return change(SOUND, segments=(change(SOUND.segments[0], blocks=blocks), SOUND.segments[1]))


DAMAGED = {
    Fault.OVERLAP: change(SOUND, segments=(SOUND.segments[0], change(SOUND.segments[1], address=1024))),
    Fault.GAP: with_blocks(block(0, 512, 3), block(1024, 1024, 0)),
    Fault.EMPTY: with_blocks(block(0, 512, 3), block(512, 0, 0), block(512, 1536, 0)),
    Fault.MISALIGNED: with_blocks(block(0, 500, 3), block(500, 1548, 0)),
    Fault.UNMERGED: with_blocks(block(0, 512, 3), block(512, 512, 0), block(1024, 1024, 0)),
    Fault.OVERFULL: with_blocks(block(0, 512, 513), block(512, 1536, 0)),
    Fault.UNASKED: with_blocks(change(block(0, 512, 0), state="pending"), block(512, 1536, 0)),
    Fault.TOTAL: change(SOUND, requested=1004),
}


def test_a_sound_state_has_no_violations():
    assert validate(SOUND, limit_bytes=3072) == ()


@pytest.mark.parametrize("fault", DAMAGED)
def test_each_kind_of_damage_is_named(fault):
    assert fault in {violation.fault for violation in validate(DAMAGED[fault])}


def test_every_kind_of_fault_is_tested():
    assert {*DAMAGED, Fault.OVER_LIMIT} == set(Fault)


def test_more_than_the_device_has():
    (violation,) = validate(SOUND, limit_bytes=3071)
    assert (violation.fault, violation.detail) == (Fault.OVER_LIMIT, "3.00 KiB of 3.00 KiB")


@settings(deadline=None, max_examples=30)
@given(requests(max_events=20))
def test_a_lost_block_is_always_noticed(stream):
    allocator, live = CachingAllocator(AllocatorPolicy()), {}
    for request in stream:
        if request.action == "alloc":
            live[request.key] = allocator.allocate(request.nbytes, request.stream)
        else:
            allocator.free(live.pop(request.key))
    layout = allocator.layout()
    assert validate(layout) == ()
    for number, segment in enumerate(layout.segments):
        for missing in range(len(segment.blocks)):
            blocks = segment.blocks[:missing] + segment.blocks[missing + 1 :]
            segments = (*layout.segments[:number], change(segment, blocks=blocks), *layout.segments[number + 1 :])
            assert validate(change(layout, segments=segments))
