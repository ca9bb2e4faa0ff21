"""Which length to trace next, so that few traces make every drawn length known."""

from collections import Counter
from collections.abc import Sequence
from itertools import pairwise

from memplan.simulate.family import Families

FIRST_TRACES = 5
"""Lengths traced to begin with: a quadratic takes three, one confirms it, one more tells paddings apart."""
MOST_TRACES = 14
"""Traces at most, the confirming one aside: each costs what an estimate costs."""
TOLERATED = 0.02
"""Share of the steps between two families that may be played at a longer length than their own; the report says so."""


def spread(values: Sequence[int], count: int) -> list[int]:
    """So many of the ascending values, at least 2, evenly spread, both ends among them."""
    if len(values) <= count:
        return list(values)
    return sorted({values[index * (len(values) - 1) // (count - 1)] for index in range(count)})


def most_wanted(families: Families, counts: Counter[int]) -> int | None:
    """The drawn length at which a trace would tell most; None if the rest is known well enough.

    ``counts`` has the steps that will be played at each length.
    """
    members = families.members
    gaps = [
        [length for length in sorted(counts) if before.longest < length < after.shortest]
        for before, after in pairwise(members)
    ]
    inside = [(n, family) for n in sorted(counts) for family in members if family.shortest <= n <= family.longest]
    # Sizes of no known form: more points may give them one.
    gaps.append([length for length, family in inside if not family.exact_at(length)])
    worst = max(gaps, key=lambda gap: sum(counts[length] for length in gap))
    if sum(counts[length] for length in worst) > TOLERATED * counts.total():
        return worst[len(worst) // 2]
    disputes = {length: family.disputes_at(length) for length, family in inside}
    length = max(disputes, key=disputes.__getitem__, default=0)
    return length if disputes.get(length) else None
