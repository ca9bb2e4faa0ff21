"""Laws of the judgement, and how often it errs."""

import math
import random
from collections.abc import Callable
from itertools import combinations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from memplan.runtime.leaks.records import Growing, TooShort, WarmUp
from memplan.runtime.leaks.trend import BLOCKS, FALSE_ALARMS, FLOORS, PATIENCE, Floor, judge, ordered_by_chance

VALUES = st.lists(st.integers(0, 1 << 40), min_size=PATIENCE, max_size=400)
CLIMBS = st.builds(
    lambda noise, rate: [value + at * rate for at, value in enumerate(noise)],
    st.lists(st.integers(0, 50), min_size=PATIENCE, max_size=400), st.integers(0, 100),
)  # fmt: skip
SERIES = VALUES | CLIMBS


@given(SERIES, st.integers(-(1 << 40), 1 << 40))
def test_what_was_there_before_changes_nothing(series: list[int], constant: int) -> None:
    assert judge([value + constant for value in series]) == judge(series)


@given(SERIES, st.integers(0, 20))
def test_bytes_or_kilobytes_are_the_same(series: list[int], power: int) -> None:
    before, after = judge(series), judge([value << power for value in series])
    assert type(after) is type(before)
    if isinstance(before, Growing) and isinstance(after, Growing):
        assert after.rate == pytest.approx(before.rate * (1 << power))
        assert (after.low, after.high) == pytest.approx((before.low * (1 << power), before.high * (1 << power)))
        assert (after.since, after.p_value) == (before.since, before.p_value)


@given(SERIES)
def test_growth_comes_with_an_interval_around_it(series: list[int]) -> None:
    found = judge(series)
    if isinstance(found, Growing):
        assert found.rate > 0
        assert found.low <= found.rate <= found.high
        assert found.p_value <= FALSE_ALARMS


@given(st.lists(st.integers(0, 1 << 40), min_size=PATIENCE, max_size=400))
def test_what_only_falls_never_grows(series: list[int]) -> None:
    assert not isinstance(judge(sorted(series, reverse=True)), Growing)


@given(st.integers(0, 200), st.integers(0, 1 << 30), st.integers(100, 300))
def test_one_jump_is_no_growth(at: int, height: int, more: int) -> None:
    assert not isinstance(judge([0] * at + [height] * more), Growing)


@given(st.integers(1, 10_000), st.integers(1, 250), st.integers(1, 200))
def test_growth_that_has_ended_for_a_third_is_warm_up(rate: int, until: int, more: int) -> None:
    series = [rate * min(at, until) for at in range(until + max(PATIENCE, until) + more)]
    assert judge(series) == WarmUp(gained=rate * until, until=until + 1)


@given(st.integers(1, 1 << 30), st.integers(PATIENCE, 2000))
def test_growth_without_noise_is_found_at_once_and_exactly(rate: int, steps: int) -> None:
    found = judge([rate * at for at in range(steps)])
    assert isinstance(found, Growing)
    assert found.rate == pytest.approx(rate)
    assert found.since < FLOORS


@given(st.lists(st.integers(), max_size=PATIENCE - 1))
def test_short_series_are_not_judged(series: list[int]) -> None:
    assert judge(series) == TooShort(needed=PATIENCE)


def test_the_chance_of_order_is_kendalls() -> None:
    pairs = math.comb(BLOCKS, 2)
    assert ordered_by_chance(0) == 1 / math.factorial(BLOCKS)
    assert ordered_by_chance(1) == BLOCKS / math.factorial(BLOCKS)  # In order, or one of nine neighbours swapped.
    assert ordered_by_chance(pairs) == 1
    assert all(ordered_by_chance(k) == pytest.approx(1 - ordered_by_chance(pairs - k - 1)) for k in range(pairs))
    chance, tries = random.Random(0), 20_000
    shuffled = [chance.sample(range(BLOCKS), BLOCKS) for _ in range(tries)]
    few = sum(sum(b < a for a, b in combinations(each, 2)) <= 15 for each in shuffled) / tries
    assert few == pytest.approx(ordered_by_chance(15), abs=4 * math.sqrt(0.25 / tries))


def uniform(chance: random.Random) -> float:
    return chance.random()


def normal(chance: random.Random) -> float:
    return chance.gauss(0, 1)


def spikes(chance: random.Random) -> float:
    return 100.0 * (chance.random() < 0.1)


@pytest.mark.parametrize("noise", [uniform, normal, spikes])
def test_false_alarms_are_as_rare_as_stated(noise: Callable[[random.Random], float]) -> None:
    """Also with two jumps, or growth that ends, anywhere: then one third is still without growth."""
    chance, alarms, tries = random.Random(1), 0, 1500
    for at in range(tries):
        steps = chance.choice([90, 180, 400])
        jumps = [chance.randrange(steps) for _ in range(at % 3)]
        ends = chance.randrange(2 * steps // 3) if at % 4 == 0 else 0
        series = [
            noise(chance) + min(step, ends) + 1000 * sum(step >= jump for jump in jumps) for step in range(steps)
        ]  # fmt: skip
        alarms += isinstance(judge(series), Growing)
    assert alarms <= 6  # Expected 1.5 at most; more than 6 in one of a thousand.


@pytest.mark.parametrize(("noise", "steps"), [(16, 180), (64, 600), (256, 1800), (1024, 6000)])
def test_a_leak_under_noise_is_found_in_time(noise: float, steps: int) -> None:
    """A leak of 1 a step under uniform noise of this height."""
    chance = random.Random(2)
    found = [judge([step + noise * chance.random() for step in range(steps)]) for _ in range(40)]
    growing = [each for each in found if isinstance(each, Growing)]
    assert len(growing) >= 38
    assert all(each.rate == pytest.approx(1, rel=0.25) for each in growing)


def test_a_saw_tooth_does_not_grow() -> None:
    for period in range(2, 60):
        for steps in range(180, 600, 17):
            assert not isinstance(judge([step % period for step in range(steps)]), Growing)


def test_a_leak_that_begins_late_is_found() -> None:
    series = [max(0, step - 5000) for step in range(5000 + 2 * PATIENCE)]
    found = judge(series)
    assert isinstance(found, Growing)
    assert found.since >= 5000 - 5
    assert found.rate == pytest.approx(1, rel=0.02)


def test_growth_that_fades_is_not_called_a_leak() -> None:
    full = [1000 * (1 - math.exp(-step / 60)) for step in range(300)]
    assert isinstance(judge(full), WarmUp)


@given(st.integers(1, 20_000), st.integers(2, 64))
def test_a_series_keeps_its_floors_in_bounded_room(steps: int, half: int) -> None:
    floor = Floor(room=2 * half)
    values = [(step * 7919) % 1000 for step in range(steps)]
    for value in values:
        floor.add(value)
    assert len(floor.values) < 2 * half
    assert floor.values == [
        min(values[at : at + floor.width]) for at in range(0, len(floor.values) * floor.width, floor.width)
    ]
    assert steps - len(floor.values) * floor.width < floor.width


def test_a_long_run_is_judged_by_its_floors() -> None:
    floor = Floor(room=256)
    for step in range(10_000):
        floor.add(3 * step + (step * 7919) % 500)
    found = judge(floor.values, width=floor.width)
    assert isinstance(found, Growing)
    assert found.rate == pytest.approx(3, rel=0.02)
