"""A pool of fixed block sizes: what slab allocators and hand-written tensor pools do. PyTorch has no such policy.

bucket  2 MiB   ┌──────┬──────┬──────┬──────┐    a request takes a block of the smallest bucket that holds it;
                │ live │ free │ live │ free │    blocks are neither split nor merged, so nothing breaks into
                └──────┴──────┴──────┴──────┘    pieces, but what a block has too much is lost while it lives
"""

from bisect import bisect_left
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence

from memplan.replay.blocks import Block, Pool
from memplan.replay.caching import bump_addresses
from memplan.replay.observer import Observer
from memplan.replay.policy import ROUND_LARGE, AllocatorPolicy
from memplan.replay.records import OutOfMemory
from memplan.units import Bytes

_SEGMENTS = AllocatorPolicy()
"""Slabs are as large as PyTorch's segments, so that the device is asked as often for as much."""


class _Slab:
    """Memory taken from the device at once and cut into blocks of one bucket."""

    __slots__ = ("address", "bucket", "cut", "live", "nbytes", "stream")

    def __init__(self, stream: int, bucket: int, nbytes: int, address: int) -> None:
        self.stream = stream
        self.bucket = bucket
        self.nbytes = nbytes
        self.address = address
        self.live = 0
        # Blocks are cut off when they are needed first: a slab of small ones has thousands.
        self.cut = 0

    @property
    def uncut(self) -> int:
        """Blocks that were never needed yet."""
        return self.nbytes // self.bucket - self.cut


class _SlabBlock(Block):
    """A block that knows its slab."""

    __slots__ = ("slab",)

    def __init__(self, pool: Pool, address: int, slab: _Slab) -> None:
        super().__init__(pool, address, slab.bucket)
        self.slab = slab


class BucketedAllocator:
    """One device's pool of fixed block sizes; the interface is ``memplan.replay.allocator.Allocator``'s.

    Block sizes ascend. Requests beyond the largest get a slab of their own, rounded up to 2 MiB, which is reused for
    requests that round to the same.
    """

    observers: Sequence[Observer] = ()
    """Told of slabs taken and given back."""
    moved_bytes = 0

    def __init__(self, buckets: Sequence[int], *, limit_bytes: int | None = None) -> None:
        self.requested = 0
        """Bytes asked for and alive."""
        self.allocated = 0
        """Bytes in live blocks."""
        self.reserved = 0
        """Bytes in slabs."""
        self.retries = 0
        """Times that every slab without a live block was given back to serve one request."""
        self.failure: OutOfMemory | None = None
        """Why the last ``allocate`` returned None."""
        self._buckets = tuple(buckets)
        self._limit = limit_bytes
        self._free: defaultdict[tuple[int, int], list[_SlabBlock]] = defaultdict(list)
        self._slabs: dict[_Slab, None] = {}
        self._uncut: dict[tuple[int, int], _Slab] = {}
        self._place = bump_addresses()
        self._pool = Pool(0, small=False)

    @property
    def segments(self) -> int:
        """Number of slabs."""
        return len(self._slabs)

    def allocate(self, nbytes: int, stream: int) -> Block | None:
        """Serve a request; None, with ``failure`` set, if the device is full."""
        if not nbytes:
            return Block(self._pool, 0, 0)
        bucket = self._bucket(nbytes)
        block = self._ready(stream, bucket)
        if block is None and self._take_slab(stream, bucket):
            block = self._ready(stream, bucket)
        if block is None:
            size = Bytes(bucket)
            held = Bytes(self.allocated), Bytes(self.reserved)
            self.failure = OutOfMemory(rounded=size, wanted=size, allocated=held[0], reserved=held[1], stream=stream)
            return None
        block.slab.live += 1
        block.requested = nbytes
        self.requested += nbytes
        self.allocated += bucket
        return block

    def free(self, block: Block) -> None:
        """Take a live block back."""
        if not isinstance(block, _SlabBlock):
            return
        self.requested -= block.requested
        self.allocated -= block.size
        block.requested = 0
        block.slab.live -= 1
        self._free[block.slab.stream, block.size].append(block)

    def largest_free(self) -> int:
        """Largest block that a request can have without the device's help."""
        waiting = [bucket for (_, bucket), ready in self._free.items() if ready]
        return max([*waiting, *(bucket for _, bucket in self._uncut)], default=0)

    def fingerprint(self, live: Mapping[int, Block]) -> tuple[object, ...]:
        """What decides its future: how many blocks of each bucket wait, and in which bucket each live one lies.

        Blocks of a bucket are alike until a full device makes it matter which slab becomes empty.
        """
        counts = Counter({key: len(ready) for key, ready in self._free.items()})
        counts.update({key: slab.uncut for key, slab in self._uncut.items()})
        held = tuple(sorted((key, count) for key, count in counts.items() if count))
        names = tuple(sorted((name, block.size) for name, block in live.items()))
        if self._limit is None:
            return held, names
        order = tuple(sorted((key, tuple(block.address for block in ready)) for key, ready in self._free.items()))
        return held, names, order, tuple(sorted((name, block.address) for name, block in live.items()))

    def _bucket(self, nbytes: int) -> int:
        index = bisect_left(self._buckets, nbytes)
        return self._buckets[index] if index < len(self._buckets) else -(-nbytes // ROUND_LARGE) * ROUND_LARGE

    def _ready(self, stream: int, bucket: int) -> _SlabBlock | None:
        """A block that was used before, else the next of a slab."""
        if self._free[stream, bucket]:
            return self._free[stream, bucket].pop()
        slab = self._uncut.get((stream, bucket))
        if slab is None:
            return None
        block = _SlabBlock(self._pool, slab.address + slab.cut * bucket, slab)
        slab.cut += 1
        if not slab.uncut:
            del self._uncut[stream, bucket]
        return block

    def _take_slab(self, stream: int, bucket: int) -> bool:
        nbytes = _SEGMENTS.segment_size(bucket)
        if self._limit is not None and self.reserved + nbytes > self._limit:
            self.retries += 1
            self._release_empty()
            if self.reserved + nbytes > self._limit:
                return False
        slab = self._uncut[stream, bucket] = _Slab(stream, bucket, nbytes, self._place(nbytes))
        self._slabs[slab] = None
        self.reserved += nbytes
        for observer in self.observers:
            observer.map(self._pool, slab.address, nbytes)
        return True

    def _release_empty(self) -> None:
        """Give every slab without a live block back."""
        empty = {slab for slab in self._slabs if not slab.live}
        for key, ready in self._free.items():
            self._free[key] = [block for block in ready if block.slab not in empty]
        self._uncut = {key: slab for key, slab in self._uncut.items() if slab not in empty}
        for slab in empty:
            del self._slabs[slab]
            self.reserved -= slab.nbytes
            for observer in self.observers:
                observer.unmap(self._pool, slab.address, slab.nbytes)
