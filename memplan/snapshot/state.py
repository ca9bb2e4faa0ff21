"""The state that a snapshot shows: what is reserved, what of it is free, and why a request failed."""

from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from enum import StrEnum

from memplan.replay.cpu import NoCaching
from memplan.replay.policy import AllocatorPolicy
from memplan.replay.records import SegmentLayout
from memplan.snapshot.frames import CodePlace, place_of
from memplan.snapshot.records import DeviceSnapshot
from memplan.snapshot.timeline import Timeline
from memplan.units import Bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class PoolState:
    """All segments of one kind."""

    stream: int
    """CUDA stream they belong to."""
    small: bool
    """Do they belong to the small pool, of requests up to 1 MiB?"""
    expandable: bool
    """Are they parts of expandable segments?"""
    pool: int
    """Private pool that they belong to, of a captured graph or of the user's own; 0 for the default one."""
    segments: int
    """How many there are."""
    reserved: Bytes
    """Bytes in them."""
    allocated: Bytes
    """Bytes in their live blocks."""
    largest_free: Bytes
    """Largest free block."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StateNow:
    """A device's memory at the moment of the snapshot."""

    reserved: Bytes
    """Bytes in segments."""
    allocated: Bytes
    """Bytes in blocks that are not free."""
    requested: Bytes
    """Bytes asked for, of those blocks."""
    pending: Bytes
    """Bytes freed that still wait for another stream; part of ``allocated``."""
    largest_free: Bytes
    """Largest free block: the largest request that needs no new segment."""
    releasable: Bytes
    """What ``torch.cuda.empty_cache()`` would give back to the device."""
    stuck: Bytes
    """Free bytes that it would not: they share a segment with something alive."""
    pools: tuple[PoolState, ...]
    """The same by kind of segment, largest first."""

    @property
    def external_fragmentation(self) -> float:
        """Share of reserved bytes in free blocks."""
        return 1 - self.allocated / self.reserved if self.reserved else 0.0

    @property
    def internal_fragmentation(self) -> float:
        """Share of allocated bytes that nobody asked for."""
        return 1 - self.requested / self.allocated if self.allocated else 0.0


class OutOfMemoryCause(StrEnum):
    """Why a request could not be served."""

    FRAGMENTATION = "fragmentation"
    """Enough was free in all, but not in one piece: cached between live blocks, and on the device."""
    FULL = "full"
    """Less was free in all than was asked for."""
    LIMIT = "limit"
    """The device had enough left: the process may use only a part of it (``per_process_memory_fraction``)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class OutOfMemoryEvent:
    """A request in the history that failed."""

    event: int
    """Index of the event."""
    asked: Bytes
    """Size of the block that was needed."""
    device_free: Bytes
    """What the device had left, after everything releasable had been released."""
    allocated: Bytes
    """Bytes in live blocks then."""
    reserved: Bytes
    """Bytes in segments then."""
    cause: OutOfMemoryCause
    """Why it failed."""
    place: CodePlace
    """Where in the program it was asked for."""


def state_now(snapshot: DeviceSnapshot, policy: AllocatorPolicy | NoCaching) -> StateNow:
    """Describe the state in a snapshot.

    The options that it ran with say in which units expandable segments shrink.
    """
    segments = snapshot.layout.segments
    blocks = [block for segment in segments for block in segment.blocks]
    reserved = sum(segment.size for segment in segments)
    allocated = sum(block.size for block in blocks if block.state != "free")
    releasable = sum(_releasable(segment, policy) for segment in segments)
    return StateNow(
        reserved=Bytes(reserved),
        allocated=Bytes(allocated),
        requested=Bytes(sum(block.requested for block in blocks if block.state != "free")),
        pending=Bytes(sum(block.size for block in blocks if block.state == "pending")),
        largest_free=_largest_free(segments),
        releasable=Bytes(releasable),
        stuck=Bytes(reserved - allocated - releasable),
        pools=tuple(sorted(_pools(segments), key=lambda pool: -pool.reserved)),
    )


def _pools(segments: tuple[SegmentLayout, ...]) -> Iterator[PoolState]:
    kinds: defaultdict[tuple[int, bool, bool, int], list[SegmentLayout]] = defaultdict(list)
    for segment in segments:
        kinds[segment.stream, segment.small, segment.expandable, segment.pool].append(segment)
    for (stream, small, expandable, pool), found in kinds.items():
        yield PoolState(
            stream=stream,
            small=small,
            expandable=expandable,
            pool=pool,
            segments=len(found),
            reserved=Bytes(sum(segment.size for segment in found)),
            allocated=Bytes(sum(b.size for segment in found for b in segment.blocks if b.state != "free")),
            largest_free=_largest_free(found),
        )


def _largest_free(segments: Sequence[SegmentLayout]) -> Bytes:
    free = (block.size for segment in segments for block in segment.blocks if block.state == "free")
    return max(free, default=Bytes(0))


def _releasable(segment: SegmentLayout, policy: AllocatorPolicy | NoCaching) -> int:
    """Whole segments without a live block; of expandable ones the whole units inside free blocks."""
    if not segment.expandable or isinstance(policy, NoCaching):
        return segment.size if all(block.state == "free" for block in segment.blocks) else 0
    unit = policy.unit(segment.small)
    total = 0
    for block in segment.blocks:
        if block.state == "free":
            start = block.address - segment.address
            total += max(0, (start + block.size) // unit - -(-start // unit)) * unit
    return total


def out_of_memory_events(
    snapshot: DeviceSnapshot, policy: AllocatorPolicy | NoCaching, curves: Timeline
) -> tuple[OutOfMemoryEvent, ...]:
    """Requests in a history that failed, oldest first."""
    return tuple(
        OutOfMemoryEvent(
            event=index,
            asked=Bytes(event.nbytes),
            device_free=Bytes(event.address),
            allocated=Bytes(curves.allocated[index]),
            reserved=Bytes(curves.reserved[index]),
            cause=_cause(
                wanted=policy.segment_size(event.nbytes),
                device_free=event.address,
                cached=curves.reserved[index] - curves.allocated[index],
            ),
            place=place_of(event.frames),
        )
        for index, event in enumerate(snapshot.events)
        if event.action == "oom"
    )


def _cause(*, wanted: int, device_free: int, cached: int) -> OutOfMemoryCause:
    if device_free >= wanted:
        return OutOfMemoryCause.LIMIT
    return OutOfMemoryCause.FRAGMENTATION if device_free + cached >= wanted else OutOfMemoryCause.FULL
