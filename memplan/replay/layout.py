"""An allocator's state written down: for validators and reports, and to tell whether a state repeats."""

from collections.abc import Callable, Container, Iterable, Iterator

from memplan.replay.blocks import Block, chain_of, mapped_runs
from memplan.replay.records import BlockLayout, MemoryLayout, SegmentLayout
from memplan.units import Bytes


def describe(heads: Iterable[Block], waiting: Container[Block]) -> Iterator[SegmentLayout]:
    """Segments as they stand, by their first blocks in address order; ``waiting`` blocks are freed, not yet free."""
    for head in heads:
        for run in mapped_runs(head):
            yield SegmentLayout(
                address=run[0].address,
                size=Bytes(sum(block.size for block in run)),
                stream=head.pool.stream,
                small=head.pool.small,
                blocks=tuple(_block(block, waiting) for block in run),
                expandable=bool(head.pool.unit),
                pool=head.pool.owner,
            )


def uncached(blocks: Iterable[tuple[int, int]]) -> MemoryLayout:
    """The layout without a caching allocator: each block, of an address and a size, is a segment of its own."""
    segments = tuple(_own_segment(address, Bytes(size)) for address, size in blocks)
    total = Bytes(sum(segment.size for segment in segments))
    return MemoryLayout(segments=segments, requested=total, allocated=total, reserved=total)


def _own_segment(address: int, size: Bytes) -> SegmentLayout:
    block = BlockLayout(address=address, size=size, requested=size, state="allocated")
    return SegmentLayout(address=address, size=size, stream=0, small=False, blocks=(block,))


def _block(block: Block, waiting: Container[Block]) -> BlockLayout:
    return BlockLayout(
        address=block.address,
        size=Bytes(block.size),
        requested=Bytes(block.requested),
        state="free" if block.free else "pending" if block in waiting else "allocated",
    )


def shape(
    heads: Iterable[Block], age: Callable[[Block], int]
) -> tuple[tuple[object, ...], dict[Block, tuple[int, int]]]:
    """Segments without their addresses, and where each block is: segment and offset.

    ``heads`` are the first blocks in address order; ``age`` is what garbage collection knows about a free block.
    """
    where: dict[Block, tuple[int, int]] = {}
    rows = []
    for rank, head in enumerate(heads):
        row: list[object] = [head.pool.stream, head.pool.small, head.pool.owner]
        for block in chain_of(head):
            where[block] = (rank, block.address - head.address)
            row.append((block.size, block.free, block.mapped, age(block) if block.free else 0))
        rows.append(tuple(row))
    return tuple(rows), where
