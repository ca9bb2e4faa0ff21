"""A check of any allocator."""

from itertools import pairwise


def no_overlap(blocks):
    """Compare all pairs of neighbours by address, the plain way."""
    extents = sorted((block.address, block.address + block.size) for block in blocks if block.size)
    return all(end <= start for (_, end), (start, _) in pairwise(extents))
