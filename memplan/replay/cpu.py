"""Memory without a caching allocator: what is asked for is what is held. For the ``cpu`` profile."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from memplan.replay.blocks import FIRST_ADDRESS, Block, Pool
from memplan.replay.observer import Observer
from memplan.replay.records import OutOfMemory
from memplan.units import Bytes


@dataclass(frozen=True, slots=True)
class NoCaching:
    """The policy of a device whose memory comes straight from the system."""

    def round_size(self, nbytes: int) -> int:
        """Size of the block that serves a request, as ``AllocatorPolicy`` says it: that of the request."""
        return nbytes

    def segment_size(self, size: int) -> int:
        """Bytes asked of the device for a block, likewise."""
        return size


class PlainAllocator:
    """Counts live bytes; the interface is ``memplan.replay.allocator.Allocator``'s."""

    observers: Sequence[Observer] = ()
    """Told of every block as a segment of its own."""

    def __init__(self, *, limit_bytes: int | None = None) -> None:
        self.requested = 0
        """Bytes asked for and alive; also allocated and reserved."""
        self.retries = 0
        """Always 0: nothing is cached that could be released."""
        self.segments = 0
        """Always 0: there are none."""
        self.failure: OutOfMemory | None = None
        """Why the last ``allocate`` returned None."""
        self._limit = limit_bytes
        self._pool = Pool(0, small=False)
        self._end = FIRST_ADDRESS

    @property
    def allocated(self) -> int:
        """Bytes in live blocks."""
        return self.requested

    @property
    def reserved(self) -> int:
        """Bytes taken from the system."""
        return self.requested

    def allocate(self, nbytes: int, stream: int) -> Block | None:
        """Take bytes from the system; None if it has no more, and ``failure`` then says so."""
        if self._limit is not None and self.requested + nbytes > self._limit:
            size, held = Bytes(nbytes), Bytes(self.requested)
            self.failure = OutOfMemory(rounded=size, wanted=size, allocated=held, reserved=held, stream=stream)
            return None
        self.requested += nbytes
        block = Block(self._pool, self._end, nbytes)
        self._end += nbytes
        if self.observers and nbytes:
            for observer in self.observers:
                observer.map(self._pool, block.address, nbytes)
        return block

    def free(self, block: Block) -> None:
        """Give a live block back."""
        self.requested -= block.size
        if self.observers and block.size:
            for observer in self.observers:
                observer.unmap(self._pool, block.address, block.size)

    def fingerprint(self, live: Mapping[int, Block]) -> tuple[object, ...]:
        """What decides its future: live bytes, and the sizes of the blocks that will be freed."""
        return self.requested, tuple(sorted((name, block.size) for name, block in live.items()))
