"""What was mapped before a recorded history of expandable segments.

A snapshot names mapped stretches, not the address space that they lie in. What is assumed: everything of one stream and
size class lies in one space at a time, which begins at the lowest address seen. So it is unless a process outgrows 9/8
of its device. A space whose last byte is unmapped is given up, as in PyTorch, and the next begins where the GPU maps
next.
"""

from bisect import bisect_left, bisect_right
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Final

from memplan.errors import EstimateError
from memplan.replay.policy import SMALL_SEGMENT, SMALL_SIZE, AllocatorPolicy
from memplan.replay.records import SegmentLayout
from memplan.snapshot.records import DeviceSnapshot, SnapshotEvent
from memplan.snapshot.start_state import blocks_before, filled
from memplan.units import Bytes


class Ranges:
    """Disjoint ranges; touching ones are one."""

    def __init__(self) -> None:
        self._starts: list[int] = []
        self._ends: list[int] = []

    def add(self, start: int, end: int) -> bool:
        """Add a range; False, and nothing happens, if it is empty or a part of it is there already."""
        index = bisect_right(self._starts, start)
        before = index > 0 and self._ends[index - 1] >= start
        if start >= end or (before and self._ends[index - 1] > start):
            return False
        if index < len(self._starts) and self._starts[index] < end:
            return False
        after = index < len(self._starts) and self._starts[index] == end
        first, last = index - before, index + after
        start = self._starts[first] if before else start
        end = self._ends[last - 1] if after else end
        self._starts[first:last], self._ends[first:last] = [start], [end]
        return True

    def remove(self, start: int, end: int) -> bool:
        """Take a range away; False, and nothing happens, if it is empty or a part of it is not there."""
        index = bisect_right(self._starts, start) - 1
        if start >= end or index < 0 or self._ends[index] < end:
            return False
        left = [(self._starts[index], start)] if self._starts[index] < start else []
        right = [(end, self._ends[index])] if end < self._ends[index] else []
        self._starts[index : index + 1] = [low for low, _ in left + right]
        self._ends[index : index + 1] = [high for _, high in left + right]
        return True

    def __iter__(self) -> Iterator[tuple[int, int]]:
        """The ranges in order."""
        return iter(list(zip(self._starts, self._ends, strict=True)))


Pool = tuple[int, bool]
"""Stream, and whether it is the small pool."""
_FAR: Final = 1 << 40
"""Bytes between addresses that are not of one space: no device has nearly as much."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Space:
    """One pool's address space when the history begins."""

    stream: int
    """CUDA stream it belongs to."""
    small: bool
    """Does it belong to the small pool?"""
    origin: int
    """Where it starts."""
    mapped: tuple[SegmentLayout, ...]
    """Its mapped stretches in address order, tiled with blocks."""


class PoolsByAddress:
    """Tells which pool an address belongs to: that of the nearest address of the stream whose pool is known."""

    def __init__(self, snapshot: DeviceSnapshot, policy: AllocatorPolicy) -> None:
        self._unit = policy.large_segment_size
        known: defaultdict[int, dict[int, bool]] = defaultdict(dict)
        for segment in snapshot.layout.segments:
            known[segment.stream][segment.address] = segment.small
        for event in snapshot.events:
            if event.action == "segment_map":
                known[event.stream][event.address] = _maps_small(event)
            elif event.action in {"alloc", "free_completed"} and event.nbytes:
                known[event.stream][event.address] = policy.round_size(event.nbytes) <= SMALL_SIZE
        self._known = {stream: sorted(pools.items()) for stream, pools in known.items()}

    def of(self, event: SnapshotEvent) -> Pool:
        """The pool that an event maps for or unmaps from."""
        if event.action == "segment_map":
            return event.stream, _maps_small(event)
        by_size = event.nbytes % self._unit != 0
        known = self._known.get(event.stream, ())
        index = bisect_left(known, (event.address, False))
        near = [place for place in known[max(0, index - 1) : index + 1] if abs(place[0] - event.address) < _FAR]
        if by_size or not near:
            return event.stream, by_size
        return event.stream, min(near, key=lambda place: abs(place[0] - event.address))[1]


def _maps_small(event: SnapshotEvent) -> bool:
    """The small pool maps one unit of 2 MiB at a time, the large pool never as little."""
    return event.nbytes == SMALL_SEGMENT


def spaces_before(snapshot: DeviceSnapshot, policy: AllocatorPolicy, pools: PoolsByAddress) -> tuple[Space, ...]:
    """Address spaces with something mapped before a history.

    Raises:
        EstimateError: No such state exists.
    """
    mapped = _mapped_before(snapshot, pools)
    segments = sorted(_stretches(mapped), key=lambda segment: segment.address)
    for left, right in pairwise(segments):
        if left.address + left.size > right.address:
            raise EstimateError(f"this history contradicts itself about the memory at {right.address}")
    tiled: defaultdict[Pool, list[SegmentLayout]] = defaultdict(list)
    for segment in filled(segments, blocks_before(snapshot, policy), keep_rests=False):
        tiled[segment.stream, segment.small].append(segment)
    origins = _origins(snapshot, pools, tiled)
    return tuple(
        Space(stream=pool[0], small=pool[1], origin=origins[pool], mapped=tuple(found)) for pool, found in tiled.items()
    )


def _mapped_before(snapshot: DeviceSnapshot, pools: PoolsByAddress) -> Mapping[Pool, Ranges]:
    mapped: defaultdict[Pool, Ranges] = defaultdict(Ranges)
    for segment in snapshot.layout.segments:
        start, end = segment.address, segment.address + segment.size
        if not mapped[segment.stream, segment.small].add(start, end):
            raise EstimateError(f"this snapshot contradicts itself about the memory at {start}")
    for event in reversed(snapshot.events):
        if event.action not in {"segment_map", "segment_unmap"}:
            continue
        ranges = mapped[pools.of(event)]
        undo = ranges.remove if event.action == "segment_map" else ranges.add
        if not undo(event.address, event.address + event.nbytes):
            raise EstimateError(f"this history contradicts itself about the memory at {event.address}")
    return mapped


def _stretches(mapped: Mapping[Pool, Ranges]) -> Iterator[SegmentLayout]:
    for (stream, small), ranges in mapped.items():
        for start, end in ranges:
            size = Bytes(end - start)
            yield SegmentLayout(address=start, size=size, stream=stream, small=small, blocks=(), expandable=True)


def _origins(
    snapshot: DeviceSnapshot, pools: PoolsByAddress, tiled: Mapping[Pool, Sequence[SegmentLayout]]
) -> Mapping[Pool, int]:
    """Lowest address of each space from the beginning until nothing of it is mapped."""
    origins = {pool: segments[0].address for pool, segments in tiled.items()}
    left: dict[Pool, int] = {pool: sum(segment.size for segment in segments) for pool, segments in tiled.items()}
    for event in snapshot.events:
        if event.action in {"segment_map", "segment_unmap"}:
            pool = pools.of(event)
            if left.get(pool):
                origins[pool] = min(origins[pool], event.address)
                left[pool] += event.nbytes if event.action == "segment_map" else -event.nbytes
    return origins
