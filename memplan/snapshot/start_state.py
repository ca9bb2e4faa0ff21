"""The state before a recorded history, worked out backwards from the state after it.

snapshot ◄── event n ◄── … ◄── event 1        an ``alloc`` undone takes a block away, a free brings it back;
(known)                                       the same for segments, and for mapped stretches of expandable ones
"""

from bisect import bisect_right
from collections.abc import Callable, Iterator, Mapping

from memplan.errors import EstimateError
from memplan.replay.cpu import NoCaching
from memplan.replay.policy import SMALL_SEGMENT, SMALL_SIZE, AllocatorPolicy
from memplan.replay.records import DEFAULT_POOL, BlockLayout, SegmentLayout
from memplan.snapshot.records import DeviceSnapshot, SnapshotEvent
from memplan.units import Bytes


def start_state(snapshot: DeviceSnapshot, policy: AllocatorPolicy) -> tuple[SegmentLayout, ...]:
    """Segments and blocks before a history without expandable segments.

    The options that it ran with say how large a block a request gets.

    Raises:
        EstimateError: No such state exists.
    """
    segments = {segment.address: segment for segment in snapshot.layout.segments}
    for event in reversed(snapshot.events):
        if event.action == "segment_alloc":
            segments.pop(event.address, None)
        elif event.action == "segment_free":
            segments[event.address] = empty_segment(event)
    ordered = [segments[address] for address in sorted(segments)]
    end = 0
    for segment in ordered:
        # Blocks are laid out anew inside the segments and cannot be wrong, but these must not overlap.
        if segment.address < end or not segment.size:
            raise EstimateError(f"this history contradicts itself about the segment at {segment.address}")
        end = segment.address + segment.size
    return tuple(filled(ordered, blocks_before(snapshot, policy), keep_rests=True))


def empty_segment(event: SnapshotEvent) -> SegmentLayout:
    """The segment that an event takes or gives back, wholly free."""
    return SegmentLayout(
        address=event.address,
        size=Bytes(event.nbytes),
        stream=event.stream,
        # Segments of 2 MiB exist in the small pool only: the large pool's smallest has 10 MiB.
        small=event.nbytes == SMALL_SEGMENT,
        blocks=(free_block(event.address, event.address + event.nbytes),) if event.nbytes else (),
        pool=event.pool,
    )


def pools_of_allocations(snapshot: DeviceSnapshot) -> Callable[[SnapshotEvent], int]:
    """Tells the private pool of an allocation: what the event says, or the snapshot's segment at its address."""
    private = [segment for segment in snapshot.layout.segments if segment.pool != DEFAULT_POOL]
    starts = [segment.address for segment in private]

    def pool_of(event: SnapshotEvent) -> int:
        if event.pool or not starts:
            return event.pool
        index = bisect_right(starts, event.address) - 1
        if index < 0 or event.address >= private[index].address + private[index].size:
            return event.pool
        return private[index].pool

    return pool_of


def free_block(start: int, end: int) -> BlockLayout:
    """A free block from ``start`` to ``end``."""
    return BlockLayout(address=start, size=Bytes(end - start), requested=Bytes(0), state="free")


def blocks_before(snapshot: DeviceSnapshot, policy: AllocatorPolicy | NoCaching) -> Mapping[int, BlockLayout]:
    """Address → block for all that was alive when the history began; sizes without rests that were not split off."""
    live = {
        block.address: block
        for segment in snapshot.layout.segments
        for block in segment.blocks
        if block.state != "free"
    }
    for event in reversed(snapshot.events):
        if event.action == "alloc":
            live.pop(event.address, None)
        elif event.action == "free_completed":
            size = Bytes(policy.round_size(event.nbytes) if event.nbytes else 0)
            live[event.address] = BlockLayout(
                address=event.address, size=size, requested=Bytes(event.nbytes), state="allocated"
            )
    return live


def filled(
    segments: list[SegmentLayout], live: Mapping[int, BlockLayout], *, keep_rests: bool
) -> Iterator[SegmentLayout]:
    """Segments tiled by the live blocks that lie in them and by free ones in between.

    Segments come in address order, not overlapping. ``keep_rests``: what the large pool would not have split off
    belongs to its block.
    """
    starts = [segment.address for segment in segments]
    inside: list[list[BlockLayout]] = [[] for _ in starts]
    for address in sorted(live):
        index = bisect_right(starts, address) - 1
        if index >= 0:
            inside[index].append(live[address])
    for segment, blocks in zip(segments, inside, strict=True):
        rest = SMALL_SIZE if keep_rests and not segment.small else 0
        yield SegmentLayout(
            address=segment.address,
            size=segment.size,
            stream=segment.stream,
            small=segment.small,
            blocks=tuple(_tiled(segment, blocks, rest)),
            expandable=segment.expandable,
            pool=segment.pool,
        )


def _tiled(segment: SegmentLayout, live: list[BlockLayout], largest_rest: int) -> Iterator[BlockLayout]:
    end = segment.address + segment.size
    cursor = segment.address
    fitting = [block for block in live if block.size and block.address + block.size <= end]
    for index, block in enumerate(fitting):
        if block.address < cursor:
            # The history contradicts itself; the comparison will say so.
            continue
        if block.address > cursor:
            yield free_block(cursor, block.address)
        limit = fitting[index + 1].address if index + 1 < len(fitting) else end
        rest = limit - block.address - block.size
        size = block.size + (rest if 0 < rest <= largest_rest else 0)
        yield BlockLayout(address=block.address, size=Bytes(size), requested=block.requested, state="allocated")
        cursor = block.address + size
    if cursor < end:
        yield free_block(cursor, end)
