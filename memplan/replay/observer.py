"""What watches an allocator and what is played to it: the base of all that counts, digests, draws or writes down."""

from memplan.replay.blocks import Block, Pool


class Observer:
    """Hears what happens; each method does nothing, for those that a subclass has no use for.

    An allocator tells what it takes from the device and gives back; the loop that plays to it (``memplan.replay.play``)
    tells the allocations and frees, each after it is done, so that what it took of the device comes before.
    """

    def map(self, pool: Pool, address: int, nbytes: int) -> None:
        """Memory was taken from the device: a segment, or a stretch of one where the pool has a ``unit``."""

    def unmap(self, pool: Pool, address: int, nbytes: int) -> None:
        """Memory was given back to the device."""

    def alloc(self, index: int, key: int, block: Block) -> None:
        """Event ``index`` of all that is played has a live block."""

    def free(self, index: int, key: int, block: Block) -> None:
        """A block was taken back. Another may have merged with it since: of what it was, only its identity is left."""
