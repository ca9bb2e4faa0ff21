"""Which sizes blocks have: fine steps at first, then those that waste least for the sizes that were asked for.

Torch-free, and pure.
"""

from bisect import bisect_left
from collections.abc import Iterator, Mapping, Sequence
from itertools import accumulate

TOLD_APART = 1024
"""Sizes for each doubling that are counted apart: a program may ask for any number of sizes."""
PAGE = 4096
"""Large blocks are whole pages: what the system gives a process at a time."""


def divisions(most_waste: float) -> int:
    """Sizes for each doubling, as PyTorch's ``roundup_power2_divisions``: n of them waste at most 1 / (n + 1)."""
    number = 1
    while number < TOLD_APART and 1 / (number + 1) > most_waste:
        number *= 2
    return number


def stepped(nbytes: int, divisions: int) -> int:
    """The size rounded up to one of so many, a power of two, for each doubling; in whole pages."""
    step = max(PAGE, 1 << max(0, (nbytes - 1).bit_length() - divisions.bit_length()))
    return -(-nbytes // step) * step


def rounded(nbytes: int, buckets: Sequence[int], most_waste: float) -> int:
    """The size of a block for a request.

    Buckets increase. A request that wastes more than ``most_waste`` of any of them is rounded by steps.
    """
    index = bisect_left(buckets, nbytes)
    if index < len(buckets) and nbytes >= buckets[index] * (1 - most_waste):
        return buckets[index]
    return stepped(nbytes, divisions(most_waste))


def fitted(most: Mapping[int, int], *, most_waste: float, most_sizes: int = 64) -> tuple[int, ...]:
    """The fewest buckets that waste no more than so much: few buckets, so that a block serves many requests.

    ``most`` says how many blocks of each size are alive at once. Beyond ``most_sizes`` neighbours are taken together:
    the time is cubic in them.
    """
    total = sum(size * count for size, count in most.items())
    chosen: tuple[int, ...] = ()
    for chosen in best_choices(most, most_sizes=most_sizes):
        if waste(chosen, most) <= most_waste * total:
            break
    return chosen


def waste(buckets: Sequence[int], most: Mapping[int, int]) -> int:
    """Bytes lost when every block is rounded up to one of these sizes."""
    return sum(count * (buckets[bisect_left(buckets, size)] - size) for size, count in most.items())


def best_choices(
    most: Mapping[int, int], *, most_sizes: int, most_buckets: int | None = None
) -> Iterator[tuple[int, ...]]:
    """For one bucket, for two, and so on: the sizes that waste least when every block is rounded up to one of them.

    Dynamic programming over how many of the sizes, from the smallest, so many buckets cover.

    ``most`` says how many blocks of each size are alive at once. Each number of buckets takes time quadratic in
    ``most_sizes``; it ends with a bucket for each size where ``most_buckets`` is None.
    """
    sizes = _thinned(sorted(most), most_sizes)
    blocks, nbytes = _sums(sizes, most)
    least: list[float] = [0.0] + [float("inf")] * len(sizes)
    layers: list[list[int]] = []
    for _ in sizes[:most_buckets]:
        after, layer = least[:], list(range(len(sizes) + 1))
        for end in range(1, len(sizes) + 1):
            largest, to_blocks, to_nbytes = sizes[end - 1], blocks[end], nbytes[end]
            for start in range(end):
                lost = least[start] + largest * (to_blocks - blocks[start]) - (to_nbytes - nbytes[start])
                if lost < after[end]:
                    after[end], layer[end] = lost, start
        least = after
        layers.append(layer)
        yield _chosen(sizes, layers)


def _sums(sizes: Sequence[int], most: Mapping[int, int]) -> tuple[list[int], list[int]]:
    """Blocks and bytes of all sizes below each index; what was thinned out counts with the next larger."""
    blocks, nbytes = [0] * (len(sizes) + 1), [0] * (len(sizes) + 1)
    for size, count in most.items():
        index = bisect_left(sizes, size) + 1
        blocks[index] += count
        nbytes[index] += count * size
    return list(accumulate(blocks)), list(accumulate(nbytes))


def _chosen(sizes: Sequence[int], layers: Sequence[Sequence[int]]) -> tuple[int, ...]:
    """Largest sizes of the ranges; a layer that begins where it ends was of no use."""
    chosen, end = [], len(sizes)
    for layer in reversed(layers):
        if layer[end] != end:
            chosen.append(sizes[end - 1])
            end = layer[end]
    return tuple(reversed(chosen))


def _thinned(sizes: Sequence[int], most: int) -> list[int]:
    """At most so many of the sizes, evenly spread, the last among them."""
    if len(sizes) <= most:
        return list(sizes)
    return sorted({sizes[(index + 1) * len(sizes) // most - 1] for index in range(most)})
