"""Bucket sizes: read as typed, or fitted to the sizes that a stream asks for."""

import dataclasses
from collections import Counter
from collections.abc import Mapping, Sequence
from itertools import pairwise

from memplan.errors import UsageError
from memplan.replay.bucketed import BucketedAllocator
from memplan.replay.policy import MIN_BLOCK
from memplan.runtime.pools.buckets import best_choices
from memplan.simulate.family import Family
from memplan.simulate.play import StepPlayer
from memplan.simulate.records import Workload
from memplan.units import parse_size

COUNTS = (2, 4, 6, 8, 12, 16, 24, 32, 48)
"""Numbers of buckets that are tried: few waste by rounding, many because blocks of one size never serve another."""
SAMPLED_LENGTHS = 8
"""Lengths whose sizes make up the histogram, evenly spread over those drawn, both ends among them."""
MOST_SIZES = 120
"""Sizes that the fit looks at: its time is quadratic in them. Beyond, neighbours are taken together."""


def parse_buckets(text: str) -> tuple[int, ...]:
    """Read ``--buckets 2MiB,8MiB,32MiB``.

    Raises:
        UsageError: A size cannot be read, or they do not increase.
    """
    sizes = [_size(word.strip(), text) for word in text.split(",")]
    for smaller, larger in pairwise(sizes):
        if smaller >= larger:
            raise UsageError(f"--buckets {text}: the sizes must increase, and {larger} comes after {smaller}")
    return tuple(sizes)


def _size(word: str, text: str) -> int:
    try:
        size = parse_size(word)
    except ValueError as error:
        raise UsageError(f"--buckets {text}: {error}") from None
    if size < 1:
        raise UsageError(f"--buckets {text}: a block of {word} holds nothing")
    return size


def fitted_buckets(workload: Workload) -> tuple[int, ...]:
    """The buckets that reserve least for a sample of a workload's lengths.

    For each number of buckets those are taken that waste least by rounding, if each size had as many blocks as are ever
    alive of it; then each choice plays the sample.
    """
    sample = _sampled(sorted(set(workload.lengths)))
    most: Counter[int] = Counter()
    for length in sample:
        family, fitting = workload.families.of(length)
        most |= most_alive(family, family.sizes_at(fitting))
    shorter = dataclasses.replace(workload, lengths=sample)
    return min(all_best_buckets(most), key=lambda buckets: (_reserved(buckets, shorter), len(buckets)))


def _sampled(lengths: Sequence[int]) -> tuple[int, ...]:
    if len(lengths) <= SAMPLED_LENGTHS:
        return tuple(lengths)
    return tuple(lengths[index * (len(lengths) - 1) // (SAMPLED_LENGTHS - 1)] for index in range(SAMPLED_LENGTHS))


def _reserved(buckets: Sequence[int], workload: Workload) -> int:
    player = StepPlayer(BucketedAllocator(buckets))
    player.run(workload)
    return max(step.peak_reserved for step in player.steps)


def most_alive(family: Family, sizes: Sequence[int]) -> Counter[int]:
    """Rounded size → most blocks of it alive at once, in a step and all that came before it."""
    alive: Counter[int] = Counter()
    most: Counter[int] = Counter()
    size_of: dict[int, int] = {}
    for call in (call for stretch in family.stretches for call in stretch):
        if call.is_free:
            # What a family's step frees under its own key was there before it began.
            alive[size_of.pop(call.key, 0)] -= 1
            continue
        size = size_of[call.key] = -(-sizes[call.size] // MIN_BLOCK) * MIN_BLOCK
        alive[size] += 1
        most[size] = max(most[size], alive[size])
    del most[0]
    return most


def all_best_buckets(most: Mapping[int, int]) -> tuple[tuple[int, ...], ...]:
    """For each of ``COUNTS``, sizes that waste least when every block (size → how many at once) is rounded up."""
    choices = tuple(best_choices(most, most_sizes=MOST_SIZES, most_buckets=max(COUNTS))) or ((),)
    return tuple(dict.fromkeys(choices[min(count, len(choices)) - 1] for count in COUNTS))
