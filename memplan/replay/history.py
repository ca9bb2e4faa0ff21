"""Replays the history in a real snapshot and compares every address: the model checked against GPUs."""

from bisect import bisect_right
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from memplan.errors import EstimateError
from memplan.replay.caching import CachingAllocator, bump_addresses
from memplan.replay.policy import SMALL_SEGMENT, SMALL_SIZE, AllocatorPolicy
from memplan.replay.records import BlockLayout, SegmentLayout
from memplan.replay.snapshot_records import DeviceSnapshot, SnapshotEvent
from memplan.units import Bytes

if TYPE_CHECKING:
    from memplan.replay.blocks import Block

_SPARE_ADDRESSES = 1 << 50
"""Where segments go that the real allocator did not ask for: beyond all CUDA addresses."""


@dataclass(frozen=True, slots=True, kw_only=True)
class HistoryReplay:
    """How far the model and a recorded history agree."""

    events: int
    """Events in the history."""
    allocations: int
    """Allocations in it."""
    allocations_matched: int
    """Those that the model put at the recorded address."""
    segment_events: int
    """Segments taken from and given back to the device."""
    segment_events_matched: int
    """Those that the model needed at the same moment, of the same size."""
    final_blocks: int
    """Blocks in the snapshot."""
    final_blocks_matched: int
    """Those with the same address, size and state at the end of the replay."""
    peak_reserved: Bytes
    """Most bytes in the model's segments at once."""
    recorded_peak_reserved: Bytes
    """Most bytes in the real ones, within the history."""
    peak_allocated: Bytes
    """Most bytes in the model's live blocks at once."""
    first_mismatch: str
    """What differed first; empty if nothing did."""

    @property
    def exact(self) -> bool:
        """Does everything agree?"""
        return (
            not self.first_mismatch
            and self.final_blocks == self.final_blocks_matched
            and self.peak_reserved == self.recorded_peak_reserved
        )


def replay_history(snapshot: DeviceSnapshot, *, policy: AllocatorPolicy | None = None) -> HistoryReplay:
    """Work out the state before the history from the state after it, play the history, and compare.

    Args:
        snapshot: One device of a snapshot.
        policy: The options that it ran with; PyTorch's defaults if not given.

    Raises:
        EstimateError: The device used expandable segments, whose history does not say where they begin; or the history
            contradicts itself.
    """
    if any(segment.expandable for segment in snapshot.layout.segments):
        raise EstimateError("this history is of expandable segments, which cannot be replayed from a snapshot")
    comparison = _Comparison(snapshot, policy or AllocatorPolicy())
    for index, event in enumerate(snapshot.events):
        comparison.play(index, event)
    return comparison.result()


class _Comparison:
    """One history in progress."""

    def __init__(self, snapshot: DeviceSnapshot, policy: AllocatorPolicy) -> None:
        self.snapshot = snapshot
        self.allocator = CachingAllocator(policy, place=self._place)
        self.live: dict[int, Block] = {}
        self.extents: dict[int, int] = {}
        for segment in start_state(snapshot, policy):
            self._adopt(segment)
        self.spare = bump_addresses(_SPARE_ADDRESSES)
        self.pending: list[SnapshotEvent] = []
        self.index = 0
        self.matched = {"alloc": 0, "segment": 0}
        self.first_mismatch = ""
        self.recorded = self.recorded_peak = self.peak_reserved = self.allocator.reserved
        self.peak_allocated = self.allocator.allocated

    def play(self, index: int, event: SnapshotEvent) -> None:
        self.index = index
        match event.action:
            case "segment_alloc":
                self.recorded += event.nbytes
                self.recorded_peak = max(self.recorded_peak, self.recorded)
                self.pending.append(event)
            case "segment_free":
                self.recorded -= event.nbytes
                self._release(event)
            case "alloc":
                self._allocate(event)
            case "free_completed":
                self._free(event)
            case _:
                pass

    def _allocate(self, event: SnapshotEvent) -> None:
        block = self.allocator.allocate(event.nbytes, event.stream)
        if self.pending:
            self._differ(f"the GPU took a segment of {self.pending[-1].nbytes} bytes, the model did not")
            self._adopt_pending()
        if block is None or block.address != event.address:
            self._differ(f"{event.nbytes} bytes at {event.address}, by the model at {block and block.address}")
        else:
            self.matched["alloc"] += 1
        if block is not None:
            self.live[event.address] = block
        self.peak_reserved = max(self.peak_reserved, self.allocator.reserved)
        self.peak_allocated = max(self.peak_allocated, self.allocator.allocated)

    def _free(self, event: SnapshotEvent) -> None:
        block = self.live.pop(event.address, None)
        if block is None:
            self._differ(f"free of {event.address}, where nothing is alive")
        else:
            self.allocator.free(block)

    def _release(self, event: SnapshotEvent) -> None:
        if self.allocator.release_segment(event.address, event.nbytes):
            del self.extents[event.address]
            self.matched["segment"] += 1
        else:
            self._differ(f"the GPU gave back the segment at {event.address}, the model cannot")

    def _place(self, nbytes: int) -> int:
        """Where the model's next segment goes: where the GPU's went, if it took one of the same size just now."""
        if self.pending and self.pending[-1].nbytes == nbytes and not self._taken(self.pending[-1]):
            self.matched["segment"] += 1
            address = self.pending.pop().address
        else:
            self._differ(f"the model needs a segment of {nbytes} bytes, the GPU did not")
            address = self.spare(nbytes)
        self.extents[address] = nbytes
        return address

    def _taken(self, event: SnapshotEvent) -> bool:
        """Does the model, after an earlier difference, still hold addresses that the GPU takes anew?"""
        end = event.address + event.nbytes
        return any(start < end and event.address < start + size for start, size in self.extents.items())

    def _adopt_pending(self) -> None:
        """Keep segments that only the GPU has: later requests may fit them."""
        for event in self.pending:
            if event.nbytes and not self._taken(event):
                self._adopt(_segment(event, (_free_block(event.address, event.address + event.nbytes),)))
        self.pending.clear()

    def _adopt(self, segment: SegmentLayout) -> None:
        self.extents[segment.address] = segment.size
        self.live.update({block.address: block for block in self.allocator.adopt(segment) if not block.free})

    def _differ(self, what: str) -> None:
        self.first_mismatch = self.first_mismatch or f"event {self.index}: {what}"

    def result(self) -> HistoryReplay:
        recorded = _block_set(self.snapshot.layout.segments)
        actions = [event.action for event in self.snapshot.events]
        return HistoryReplay(
            events=len(actions),
            allocations=actions.count("alloc"),
            allocations_matched=self.matched["alloc"],
            segment_events=actions.count("segment_alloc") + actions.count("segment_free"),
            segment_events_matched=self.matched["segment"],
            final_blocks=len(recorded),
            final_blocks_matched=len(recorded & _block_set(self.allocator.layout().segments)),
            peak_reserved=Bytes(self.peak_reserved),
            recorded_peak_reserved=Bytes(self.recorded_peak),
            peak_allocated=Bytes(self.peak_allocated),
            first_mismatch=self.first_mismatch,
        )


def _block_set(segments: Sequence[SegmentLayout]) -> set[tuple[int, int, bool]]:
    return {(block.address, block.size, block.state == "free") for segment in segments for block in segment.blocks}


def _segment(event: SnapshotEvent, blocks: tuple[BlockLayout, ...]) -> SegmentLayout:
    return SegmentLayout(
        address=event.address,
        size=Bytes(event.nbytes),
        stream=event.stream,
        # Segments of 2 MiB exist in the small pool only: the large pool's smallest has 10 MiB.
        small=event.nbytes == SMALL_SEGMENT,
        blocks=blocks,
    )


def start_state(snapshot: DeviceSnapshot, policy: AllocatorPolicy) -> tuple[SegmentLayout, ...]:
    """Segments and blocks before a history, worked out backwards from those after it.

    Args:
        snapshot: One device of a snapshot, without expandable segments.
        policy: The options that it ran with; they say how large a block a request gets.

    Raises:
        EstimateError: No such state exists.
    """
    segments = {segment.address: segment for segment in snapshot.layout.segments}
    live = {block.address: block for segment in segments.values() for block in segment.blocks if block.state != "free"}
    for event in reversed(snapshot.events):
        match event.action:
            case "alloc":
                live.pop(event.address, None)
            case "free_completed":
                live[event.address] = _block(event, policy)
            case "segment_alloc":
                segments.pop(event.address, None)
            case "segment_free":
                segments[event.address] = _segment(event, ())
            case _:
                pass
    return _sound(tuple(_filled(segments, live)))


def _sound(segments: tuple[SegmentLayout, ...]) -> tuple[SegmentLayout, ...]:
    """Refuse segments that no allocator can be in; what is between their blocks is tiled here and cannot be wrong."""
    end = 0
    for segment in segments:
        if segment.address < end or not segment.size:
            raise EstimateError(f"this history contradicts itself about the segment at {segment.address}")
        end = segment.address + segment.size
    return segments


def _block(event: SnapshotEvent, policy: AllocatorPolicy) -> BlockLayout:
    size = Bytes(policy.round_size(event.nbytes) if event.nbytes else 0)
    return BlockLayout(address=event.address, size=size, requested=Bytes(event.nbytes), state="allocated")


def _filled(segments: dict[int, SegmentLayout], live: dict[int, BlockLayout]) -> Iterator[SegmentLayout]:
    starts = sorted(segments)
    inside: dict[int, list[BlockLayout]] = {start: [] for start in starts}
    for address in sorted(live):
        index = bisect_right(starts, address) - 1
        if index >= 0:
            inside[starts[index]].append(live[address])
    for start in starts:
        blocks = tuple(_tiled(segments[start], inside[start]))
        yield SegmentLayout(
            address=start,
            size=segments[start].size,
            stream=segments[start].stream,
            small=segments[start].small,
            blocks=blocks,
        )


def _tiled(segment: SegmentLayout, live: list[BlockLayout]) -> Iterator[BlockLayout]:
    """Live blocks and the free ones between them. What the large pool would not have split off belongs to its block."""
    end = segment.address + segment.size
    cursor = segment.address
    fitting = [block for block in live if block.size and block.address + block.size <= end]
    for index, block in enumerate(fitting):
        if block.address < cursor:
            # The history contradicts itself; the comparison will say so.
            continue
        if block.address > cursor:
            yield _free_block(cursor, block.address)
        limit = fitting[index + 1].address if index + 1 < len(fitting) else end
        rest = limit - block.address - block.size
        size = block.size + (rest if 0 < rest <= SMALL_SIZE and not segment.small else 0)
        yield BlockLayout(address=block.address, size=Bytes(size), requested=block.requested, state="allocated")
        cursor = block.address + size
    if cursor < end:
        yield _free_block(cursor, end)


def _free_block(start: int, end: int) -> BlockLayout:
    return BlockLayout(address=start, size=Bytes(end - start), requested=Bytes(0), state="free")
