"""Which cached segments go back to the device when less than everything is released."""

from collections.abc import Iterator, Mapping

from memplan.replay.blocks import Block, Pool


def oldest(ages: Mapping[Block, int], target: int) -> Iterator[Block]:
    """Least recently used segments, group by group (``garbage_collect_cached_blocks``).

    Everything of at least average age goes, even beyond the target: this should not happen often.

    Ages are counted in searches since each free whole segment of the default pool's large blocks was freed.
    """
    left = dict(ages)
    while target > 0 and left:
        average = sum(left.values()) / len(left)
        for block in [block for block, age in left.items() if age >= average]:
            target -= block.size
            del left[block]
            yield block


def oversize(pool: Pool, wanted: int, least: int) -> list[Block]:
    """One segment of the wanted size, or the largest ones until they sum to it (``release_available_cached_blocks``).

    ``least`` is the size from which on blocks are never split (``max_split_size``).
    """
    index = pool.position(wanted)
    if index < len(pool.keys):
        return [pool.at(index)]
    chosen: list[Block] = []
    released = 0
    for block in map(pool.at, reversed(range(len(pool.keys)))):
        if released >= wanted or block.size < least:
            break
        released += block.size
        chosen.append(block)
    return chosen
