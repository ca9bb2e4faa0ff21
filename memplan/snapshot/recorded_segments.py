"""Allocators that also tell which segments each request took and gave back, as PyTorch's history does."""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Final, NamedTuple, Protocol

from memplan.replay.blocks import Block, Pool
from memplan.replay.caching import CachingAllocator, bump_addresses
from memplan.replay.cpu import NoCaching
from memplan.replay.expandable import ExpandableAllocator
from memplan.replay.policy import AllocatorPolicy
from memplan.replay.records import BlockLayout, MemoryLayout, OutOfMemory, SegmentLayout
from memplan.units import Bytes

FIRST_ADDRESS: Final = 0x7F0000000000
"""Where the first segment lies: where CUDA's lie on Linux, and below 2**53, which JavaScript can count to."""


class Extent(NamedTuple):
    """A stretch of device memory."""

    address: int
    """Where it starts."""
    nbytes: int
    """Its length."""
    stream: int
    """CUDA stream that it belongs to."""


class SegmentAllocator(Protocol):
    """What a recording needs of an allocator."""

    expandable: bool
    """Are segments mapped and unmapped in parts?"""
    lost: Sequence[Extent]
    """What the last call gave back to the device."""
    gained: Sequence[Extent]
    """What it then took from the device."""

    @property
    def failure(self) -> OutOfMemory | None:
        """Why the last ``allocate`` returned None."""

    @property
    def reserved(self) -> int:
        """Bytes in segments."""

    def allocate(self, nbytes: int, stream: int) -> Block | None:
        """Serve a request; None if that is impossible."""

    def free(self, block: Block) -> None:
        """Take a live block back."""

    def layout(self) -> MemoryLayout:
        """Everything it holds."""


def watched(
    policy: AllocatorPolicy | NoCaching, *, limit_bytes: int | None, device_bytes: int | None
) -> SegmentAllocator:
    """An empty allocator under a policy; arguments as for ``memplan.replay.replay.make_allocator``."""
    if isinstance(policy, NoCaching):
        return SystemMemory()
    return WatchedAllocator(policy, limit_bytes=limit_bytes, device_bytes=device_bytes)


class WatchedAllocator:
    """A CUDA caching allocator whose segments are followed from outside."""

    def __init__(self, policy: AllocatorPolicy, *, limit_bytes: int | None, device_bytes: int | None) -> None:
        self.expandable = policy.expandable_segments
        self.lost: Sequence[Extent] = ()
        self.gained: Sequence[Extent] = ()
        self._held: list[Extent] = []
        self._placed: list[tuple[int, int]] = []
        self._bump = bump_addresses(FIRST_ADDRESS)
        kind = ExpandableAllocator if self.expandable else CachingAllocator
        self._allocator = kind(policy, limit_bytes=limit_bytes, device_bytes=device_bytes, place=self._place)

    @property
    def failure(self) -> OutOfMemory | None:
        """Why the last ``allocate`` returned None."""
        return self._allocator.failure

    @property
    def reserved(self) -> int:
        """Bytes in segments."""
        return self._allocator.reserved

    def allocate(self, nbytes: int, stream: int) -> Block | None:
        """Serve a request; None if that is impossible."""
        before, retries = self._allocator.reserved, self._allocator.retries
        block = self._allocator.allocate(nbytes, stream)
        self.lost = self.gained = ()
        if self._placed or self._allocator.reserved != before or self._allocator.retries != retries:
            self._follow(self._allocator.reserved - before, stream)
        return block

    def free(self, block: Block) -> None:
        """Take a live block back; its segment stays."""
        self._allocator.free(block)
        self.lost = self.gained = ()

    def layout(self) -> MemoryLayout:
        """Everything it holds."""
        layout = self._allocator.layout()
        marked = (replace(segment, expandable=self.expandable) for segment in layout.segments)
        return replace(layout, segments=tuple(marked))

    def _place(self, nbytes: int) -> int:
        address = self._bump(nbytes)
        self._placed.append((address, nbytes))
        return address

    def _follow(self, growth: int, stream: int) -> None:
        placed = [Extent(address, nbytes, stream) for address, nbytes in self._placed]
        self._placed.clear()
        if not self.expandable and growth == sum(extent.nbytes for extent in placed):
            # Nothing was released, so there is no need to look through everything.
            self.gained = placed
            self._held += placed
            return
        segments = self._allocator.layout().segments
        after = [Extent(segment.address, segment.size, segment.stream) for segment in segments]
        self.lost, self.gained = tuple(_outside(self._held, after)), tuple(_outside(after, self._held))
        self._held = after


class SystemMemory:
    """Memory without a caching allocator: every block is a segment of its own, gone with it."""

    expandable = False
    failure = None

    def __init__(self) -> None:
        self.lost: Sequence[Extent] = ()
        self.gained: Sequence[Extent] = ()
        self.reserved = 0
        self._pool = Pool(0, small=False)
        self._bump = bump_addresses(FIRST_ADDRESS)
        self._live: dict[int, Extent] = {}

    def allocate(self, nbytes: int, stream: int) -> Block | None:
        """Take bytes from the system."""
        block = Block(self._pool, self._bump(nbytes), nbytes)
        extent = self._live[block.address] = Extent(block.address, nbytes, stream)
        self.lost, self.gained = (), (extent,)
        self.reserved += nbytes
        return block

    def free(self, block: Block) -> None:
        """Give a live block back."""
        self.lost, self.gained = (self._live.pop(block.address),), ()
        self.reserved -= block.size

    def layout(self) -> MemoryLayout:
        """Everything it holds."""
        return MemoryLayout(
            segments=tuple(_own_segment(extent) for extent in self._live.values()),
            requested=Bytes(self.reserved),
            allocated=Bytes(self.reserved),
            reserved=Bytes(self.reserved),
        )


def _own_segment(extent: Extent) -> SegmentLayout:
    size = Bytes(extent.nbytes)
    block = BlockLayout(address=extent.address, size=size, requested=size, state="allocated")
    return SegmentLayout(address=extent.address, size=size, stream=extent.stream, small=False, blocks=(block,))


def _outside(extents: Sequence[Extent], others: Sequence[Extent]) -> Iterator[Extent]:
    """The parts of some extents that no other extent covers; both in address order."""
    index = 0
    for address, nbytes, stream in extents:
        start, end = address, address + nbytes
        while index < len(others) and others[index].address + others[index].nbytes <= start:
            index += 1
        probe = index
        while probe < len(others) and others[probe].address < end:
            if others[probe].address > start:
                yield Extent(start, others[probe].address - start, stream)
            start = others[probe].address + others[probe].nbytes
            probe += 1
        if start < end:
            yield Extent(start, end - start, stream)
