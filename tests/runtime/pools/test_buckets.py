"""Sizes of blocks: the steps' bound, and the fit against all choices there are."""

from collections import Counter
from itertools import combinations

from hypothesis import example, given, settings
from hypothesis import strategies as st

from memplan.runtime.pools.buckets import PAGE, TOLD_APART, best_choices, divisions, fitted, rounded, stepped, waste
from memplan.units import MIB

histograms = st.dictionaries(st.integers(1, 60).map(lambda n: 512 * n), st.integers(1, 9), min_size=1, max_size=8)


powers = st.integers(0, 10).map(lambda power: 1 << power)


@given(st.integers(1, 1 << 40), powers)
@example(MIB, 16)
@example(MIB + 1, 16)
def test_a_step_wastes_at_most_its_share_or_a_page(nbytes, number):
    size = stepped(nbytes, number)
    assert size >= nbytes
    assert size % PAGE == 0
    assert size - nbytes < max(PAGE, size / (number + 1))


@given(st.integers(22, 39), powers)
def test_a_doubling_has_so_many_steps(power, number):
    low = 1 << power
    sizes = {stepped(low + 1 + index * low // 2048, number) for index in range(2048)}
    assert len(sizes) == number
    assert max(sizes) == 2 * low


@given(st.floats(1 / 1025, 1))
def test_the_fewest_steps_that_waste_no_more(share):
    number = divisions(share)
    assert 1 / (number + 1) <= share
    assert number == 1 or 1 / (number / 2 + 1) > share


@given(st.integers(1, 10**9), st.sets(st.integers(1, 10**9), max_size=5), st.floats(0, 0.5))
@example(10**8, set(), 0.0)
def test_a_block_wastes_no_more_than_is_allowed(nbytes, buckets, most_waste):
    size = rounded(nbytes, sorted(buckets), most_waste)
    assert size >= nbytes
    assert size - nbytes <= max(most_waste * size + 1e-6, PAGE, size / TOLD_APART)
    assert size in buckets or size % PAGE == 0


@settings(deadline=None)
@given(histograms)
def test_each_choice_wastes_least_of_its_length(most):
    choices = list(best_choices(most, most_sizes=64))
    assert waste(choices[-1], most) == 0
    for chosen in choices:
        others = (each for each in combinations(sorted(most), len(chosen)) if max(each) == max(most))
        assert waste(chosen, most) == min(waste(other, most) for other in others)


@settings(deadline=None)
@given(histograms, st.floats(0, 0.5))
def test_the_fewest_buckets_within_the_allowed_waste(most, share):
    total = sum(size * count for size, count in most.items())
    chosen = fitted(most, most_waste=share)
    assert waste(chosen, most) <= share * total
    fewer = (each for each in combinations(sorted(most), len(chosen) - 1) if each and max(each) == max(most))
    assert all(waste(other, most) > share * total for other in fewer)


def test_many_sizes_are_taken_together():
    most = Counter(range(MIB, MIB + 4096 * 500, 4096))
    chosen = fitted(most, most_waste=0.01, most_sizes=16)
    assert len(chosen) <= 16
    assert chosen[-1] == max(most)


def test_nothing_was_asked_for():
    assert fitted({}, most_waste=0.1) == ()
