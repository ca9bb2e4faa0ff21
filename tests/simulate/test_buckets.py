"""Bucket sizes, typed and fitted."""

from itertools import combinations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from memplan.errors import UsageError
from memplan.simulate.buckets import COUNTS, all_best_buckets, parse_buckets
from memplan.units import MIB

histograms = st.dictionaries(st.integers(1, 60).map(lambda n: 512 * n), st.integers(1, 9), min_size=1, max_size=8)


def waste(buckets, most):
    return sum(count * (min(b for b in buckets if b >= size) - size) for size, count in most.items())


@settings(deadline=None)
@given(histograms)
def test_no_choice_of_as_many_buckets_wastes_less(most):
    choices = all_best_buckets(most)
    for chosen in choices:
        assert list(chosen) == sorted(set(chosen))
        assert max(chosen) == max(most)
        others = (c for c in combinations(sorted(most), len(chosen)) if max(c) == max(most))
        assert waste(chosen, most) == min(waste(other, most) for other in others)
    assert len(choices[0]) <= COUNTS[0]


def test_sizes_are_read():
    assert parse_buckets("2MiB, 8MiB,1GiB") == (2 * MIB, 8 * MIB, 1024 * MIB)


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("8MiB,2MiB", "must increase"),
        ("2MiB,2MiB", "must increase"),
        ("2MiB,", "'' is not a size"),
        ("many", "'many' is not a size"),
        ("0", "holds nothing"),
    ],
)
def test_what_cannot_be_is_refused(text, complaint):
    with pytest.raises(UsageError, match=complaint):
        parse_buckets(text)
