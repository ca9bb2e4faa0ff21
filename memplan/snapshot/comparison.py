"""One recorded history in progress beside the model: fixed segments."""

from array import array
from bisect import bisect_left, insort
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from memplan.replay.blocks import Block
from memplan.replay.caching import CachingAllocator, bump_addresses
from memplan.replay.observer import Observer
from memplan.replay.play import Player
from memplan.replay.policy import AllocatorPolicy
from memplan.replay.records import DEFAULT_POOL, Request, RequestAction, SegmentLayout
from memplan.snapshot.records import DeviceSnapshot, SnapshotEvent
from memplan.snapshot.start_state import empty_segment, pools_of_allocations, start_state
from memplan.units import Bytes

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
    """Times that memory was taken from or given back to the device."""
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
    start_sizes: Mapping[int, int]
    """Address → size of the blocks that were alive when the history began."""
    block_sizes: Sequence[int]
    """For every allocation in order the size of the model's block; 0 where it had none."""

    @property
    def exact(self) -> bool:
        """Does everything agree?"""
        return (
            not self.first_mismatch
            and self.final_blocks == self.final_blocks_matched
            and self.peak_reserved == self.recorded_peak_reserved
        )


class HistoryComparison(Observer):
    """A history of fixed segments, played to the model with the options that it ran with.

    Raises:
        EstimateError: The history contradicts itself.
    """

    def __init__(self, snapshot: DeviceSnapshot, policy: AllocatorPolicy) -> None:
        self.snapshot = snapshot
        self.live: dict[int, Block] = {}
        """Address on the GPU → the model's block."""
        self.pending: list[SnapshotEvent] = []
        """Segments that the GPU took since the last allocation, and the model did not yet."""
        self.pool_of = pools_of_allocations(snapshot)
        self.open_pool = DEFAULT_POOL
        self.index = 0
        """Of the event that the model lives through."""
        self.matched = {"alloc": 0, "segment": 0}
        self.block_sizes = array("q")
        self.first_mismatch = ""
        self.extents = _Extents()
        self.spare = bump_addresses(_SPARE_ADDRESSES)
        self.allocator = self.start(policy)
        self.start_sizes = {address: block.size for address, block in self.live.items()}
        self.recorded = self.recorded_peak = self.peak_reserved = self.allocator.reserved

    def start(self, policy: AllocatorPolicy) -> CachingAllocator:
        """The model in the state before the history."""
        allocator = CachingAllocator(policy, place=self._place)
        for segment in start_state(self.snapshot, policy):
            self._adopt(allocator, segment)
        return allocator

    def play(self) -> HistoryReplay:
        """Let the model live through the history, and compare."""
        player, requests = Player(self.allocator, (self,), self.live), self._requests()
        while not player.play(requests):
            # No address space is left: the GPU had it, and the history goes on.
            self.alloc(player.played, self.snapshot.events[self.index].address, None)
            self.peak_reserved = max(self.peak_reserved, self.allocator.reserved)
        return self._result(player)

    def alloc(self, index: int, key: int, block: Block | None) -> None:  # noqa: ARG002 - the history's own counts
        """Compare where the model put an allocation; None where it had no place for it."""
        if self.pending:
            self.differ(f"the GPU took a segment of {self.pending[-1].nbytes} bytes, the model did not")
            self.adopt_pending()
        if block is None or block.address != key:
            nbytes = self.snapshot.events[self.index].nbytes
            self.differ(f"{nbytes} bytes at {key}, by the model at {block and block.address}")
        else:
            self.matched["alloc"] += 1
        self.block_sizes.append(block.size if block is not None else 0)

    def _requests(self) -> Iterator[tuple[RequestAction, int, int, int]]:
        """The history's allocations and frees, each named by its address; what it did to segments is done between."""
        live, pool_of = self.live, self.pool_of
        for index, event in enumerate(self.snapshot.events):
            self.index = index
            action, address, nbytes, stream = event[:4]
            match action:
                case "alloc":
                    if (pool := pool_of(event)) != self.open_pool:
                        yield from self._enter(pool)
                    yield action, address, nbytes, stream
                case "free_completed" if address in live:
                    yield "free", address, 0, 0
                case "free_completed":
                    self.differ(f"free of {event.address}, where nothing is alive")
                case "segment_alloc" | "segment_map":
                    self.recorded += event.nbytes
                    self.recorded_peak = max(self.recorded_peak, self.recorded)
                    self.pending.append(event)
                case "segment_free" | "segment_unmap":
                    self.recorded -= event.nbytes
                    self.release(event)
                case _:
                    pass

    def release(self, event: SnapshotEvent) -> None:
        """Give back what the GPU gave back."""
        if self.allocator.release_segment(event.address, event.nbytes):
            self.extents.remove(event.address)
            self.matched["segment"] += 1
        else:
            self.differ(f"the GPU gave back the segment at {event.address}, the model cannot")

    def adopt_pending(self) -> None:
        """Keep what only the GPU has: later requests may fit it."""
        for event in self.pending:
            if event.nbytes and not self.extents.overlap(event.address, event.nbytes):
                self._adopt(self.allocator, empty_segment(event))
        self.pending.clear()

    def differ(self, what: str) -> None:
        """Note a difference; the first is the one that counts, for others follow from it."""
        self.first_mismatch = self.first_mismatch or f"event {self.index}: {what}"

    def _enter(self, pool: int) -> Iterator[Request]:
        """Let the next allocation go to another pool than the one before."""
        if self.open_pool != DEFAULT_POOL:
            yield Request("pool_end", self.open_pool, 0, 0)
        if pool != DEFAULT_POOL:
            yield Request("pool_begin", pool, 0, 0)
        self.open_pool = pool

    def _place(self, nbytes: int) -> int:
        """Where the model's next segment goes: where the GPU's went, if it took one of the same size just now."""
        pending = self.pending[-1] if self.pending else None
        if pending and pending.nbytes == nbytes and not self.extents.overlap(pending.address, nbytes):
            self.matched["segment"] += 1
            address = self.pending.pop().address
        else:
            self.differ(f"the model needs a segment of {nbytes} bytes, the GPU did not")
            address = self.spare(nbytes)
        self.extents.add(address, nbytes)
        return address

    def _adopt(self, allocator: CachingAllocator, segment: SegmentLayout) -> None:
        self.extents.add(segment.address, segment.size)
        self.live.update({block.address: block for block in allocator.adopt(segment) if not block.free})

    def _result(self, player: Player) -> HistoryReplay:
        recorded = _block_set(self.snapshot.layout.segments)
        actions = [event.action for event in self.snapshot.events]
        return HistoryReplay(
            events=len(actions),
            allocations=actions.count("alloc"),
            allocations_matched=self.matched["alloc"],
            segment_events=sum(action.startswith("segment") for action in actions),
            segment_events_matched=self.matched["segment"],
            final_blocks=len(recorded),
            final_blocks_matched=len(recorded & _block_set(self.allocator.layout().segments)),
            peak_reserved=Bytes(max(self.peak_reserved, player.peak_reserved)),
            recorded_peak_reserved=Bytes(self.recorded_peak),
            peak_allocated=Bytes(player.peak_allocated),
            first_mismatch=self.first_mismatch,
            start_sizes=self.start_sizes,
            block_sizes=self.block_sizes,
        )


class _Extents:
    """The model's segments, which never overlap, in address order."""

    def __init__(self) -> None:
        self._starts: list[int] = []
        self._sizes: dict[int, int] = {}

    def add(self, start: int, size: int) -> None:
        insort(self._starts, start)
        self._sizes[start] = size

    def remove(self, start: int) -> None:
        del self._starts[bisect_left(self._starts, start)]
        del self._sizes[start]

    def overlap(self, start: int, size: int) -> bool:
        """Does the model, after an earlier difference, still hold addresses that the GPU takes anew?"""
        index = bisect_left(self._starts, start + size)
        return index > 0 and self._starts[index - 1] + self._sizes[self._starts[index - 1]] > start


def _block_set(segments: Sequence[SegmentLayout]) -> set[tuple[int, int, bool]]:
    return {(block.address, block.size, block.state == "free") for segment in segments for block in segment.blocks}
