"""Replays the history in a real snapshot and compares every address, of fixed and of expandable segments."""

from collections.abc import Callable
from typing import Final

from memplan.errors import EstimateError
from memplan.replay.blocks import Block, Pool
from memplan.replay.expandable import ExpandableAllocator
from memplan.replay.policy import AllocatorPolicy
from memplan.snapshot.comparison import HistoryComparison, HistoryReplay
from memplan.snapshot.expandable_history import PoolsByAddress, Space, spaces_before
from memplan.snapshot.records import DeviceSnapshot, SnapshotEvent

_STEPS: Final = 100_000_000
"""Holes and free blocks that may be looked at in all, some ten seconds' worth: real histories need a hundredth."""


def replay_history(snapshot: DeviceSnapshot, *, policy: AllocatorPolicy | None = None) -> HistoryReplay:
    """Work out the state before the history from the state after it, play the history, and compare.

    Without a policy it ran with PyTorch's defaults. Whether segments were expandable is seen in the snapshot itself.

    Raises:
        EstimateError: The history contradicts itself, or mixes fixed and expandable segments.
    """
    return _comparison(snapshot, policy or AllocatorPolicy()).play()


def kinds_of_segments(snapshot: DeviceSnapshot) -> frozenset[bool]:
    """True if there are expandable segments in a snapshot or its history, False if there are fixed ones; or both."""
    segments = {segment.expandable for segment in snapshot.layout.segments}
    actions = {event.action for event in snapshot.events if event.action.startswith("segment")}
    return frozenset(segments | {action.endswith("map") for action in actions})


def _comparison(snapshot: DeviceSnapshot, policy: AllocatorPolicy) -> HistoryComparison:
    kinds = kinds_of_segments(snapshot)
    if len(kinds) > 1:
        raise EstimateError("this history mixes fixed and expandable segments, as captured graphs and user pools do")
    if True in kinds:
        return ExpandableComparison(snapshot, policy)
    return HistoryComparison(snapshot, policy)


class ExpandableComparison(HistoryComparison):
    """A history of expandable segments in progress; arguments and interface are ``Comparison``'s."""

    allocator: "_GuidedAllocator"

    def start(self, policy: AllocatorPolicy) -> "_GuidedAllocator":
        """The model in the state before the history."""
        self.pools = PoolsByAddress(self.snapshot, policy)
        allocator = _GuidedAllocator(policy, place=self._place_space)
        for space in spaces_before(self.snapshot, policy, self.pools):
            self.live.update({block.address: block for block in allocator.adopt_space(space)})
        return allocator

    def release(self, event: SnapshotEvent) -> None:
        """Unmap what the GPU unmapped."""
        # What is mapped before a flush belongs to a request that failed half way: its mapping stays, free.
        self.matched["segment"] += sum(map(self._back, self.pending))
        self.pending.clear()
        self.peak_reserved = max(self.peak_reserved, self.allocator.reserved)
        if self.allocator.unmap(event.address, event.nbytes, self.pools.of(event)):
            self.matched["segment"] += 1
        else:
            self.differ(f"the GPU unmapped {event.nbytes} bytes at {event.address}, the model cannot")

    def adopt_pending(self) -> None:
        """Map what only the GPU has mapped: later requests may fit it."""
        for event in self.pending:
            self._back(event)
        self.pending.clear()

    def _back(self, event: SnapshotEvent) -> bool:
        return self.allocator.back(event.address, event.nbytes, self.pools.of(event))

    def map(self, pool: Pool, address: int, nbytes: int) -> None:  # noqa: ARG002 - its addresses are one pool's
        """Compare what the model maps."""
        pending = self.pending[0] if self.pending else None
        if pending and (pending.address, pending.nbytes) == (address, nbytes):
            self.matched["segment"] += 1
            del self.pending[0]
        else:
            self.differ(f"the model maps {nbytes} bytes at {address}, the GPU did not")

    def _place_space(self, nbytes: int) -> int:
        return self.pending[0].address if self.pending else self.spare(nbytes)


class _GuidedAllocator(ExpandableAllocator):
    """An allocator that also maps and unmaps what it is told."""

    def __init__(self, policy: AllocatorPolicy, *, place: Callable[[int], int]) -> None:
        super().__init__(policy, place=place)
        self._origins: dict[Pool, int] = {}
        self._steps_left = _STEPS

    def adopt_space(self, space: Space) -> list[Block]:
        """Add an address space as it stands; its live blocks."""
        pool = self._pool((space.stream, space.small))
        size = self._policy.address_space(space.small, None)
        block = self._heads[space.origin] = Block(pool, space.origin, size)
        self._origins[pool] = space.origin
        live = []
        last = space.mapped[-1]
        if last.address + last.size > space.origin + size:
            raise EstimateError("this history uses more than one address space for a stream")
        for segment in space.mapped:
            self.reserved += segment.size
            if segment.address > block.address:
                hole, block = block, block.cut(segment.address - block.address)
                self._leave_unmapped(hole)
            for part in segment.blocks:
                found, block = block, block.cut(part.size)
                if part.state == "free":
                    pool.insert(found)
                    continue
                found.requested = part.requested
                self.requested += part.requested
                self.allocated += part.size
                live.append(found)
        self._leave_unmapped(block)
        return live

    def back(self, address: int, nbytes: int, key: tuple[int, bool]) -> bool:
        """Map a stretch; False if it is not wholly unmapped, or no whole units."""
        pool = self._pool(key)
        if not nbytes or nbytes % pool.unit:
            return False
        holes = self._unmapped[pool] or {self._new_space(pool)}
        self._count(len(holes))
        hole = next((hole for hole in holes if hole.address <= address < hole.address + hole.size), None)
        if hole is None or address + nbytes > hole.address + hole.size:
            return False
        if hole.address < address:
            hole = hole.cut(address - hole.address)
            self._leave_unmapped(hole)
        self._back(hole, nbytes)
        return True

    def unmap(self, address: int, nbytes: int, key: tuple[int, bool]) -> bool:
        """Unmap the whole units of the free block at an address; False if those are not just the bytes named."""
        pool = self._pool(key)
        self._count(len(pool.blocks))
        block = next(
            (block for block in pool.blocks.values() if block.address <= address < block.address + block.size), None
        )
        if block is None:
            return False
        before = self.reserved
        left = self._unmap(block)
        if not left.mapped and not left.is_split:
            del self._heads[left.address]
            self._unmapped[pool].remove(left)
        return before - self.reserved == nbytes and left.address <= address < left.address + left.size

    def _pool(self, key: tuple[int, bool]) -> Pool:
        return self._pools.get(key) or self._new_pool(*key)

    def _leave_unmapped(self, block: Block) -> None:
        block.mapped = False
        self._unmapped[block.pool].add(block)

    def _new_space(self, pool: Pool) -> Block:
        block = super()._new_space(pool)
        self._origins[pool] = block.address
        return block

    def _origin(self, block: Block) -> int:
        return self._origins[block.pool]

    def _find(self, pool: Pool, size: int) -> Block | None:
        self._count(len(self._unmapped[pool]))
        return super()._find(pool, size)

    def _room(self, pool: Pool, size: int) -> Block | None:
        self._count(len(self._unmapped[pool]))
        return super()._room(pool, size)

    def _count(self, steps: int) -> None:
        self._steps_left -= steps
        if self._steps_left < 0:
            raise EstimateError("this history leaves so many holes that comparing it would take too long")
