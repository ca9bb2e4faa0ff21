"""Growth, and all that looks like it. The oracle for the slope is scipy's idea in a line of numpy."""

import itertools
import random

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from memplan.runtime.monitor.judge import judge
from memplan.runtime.monitor.records import Thresholds
from memplan.runtime.monitor.trend import Point, trend_of
from memplan.units import GIB, MIB
from tests.runtime.monitor.readings import card, codes, judged, reading

LONG = 100


def _checks(sizes: list[int], **options: object) -> list:
    return judged([card(allocated=size, peak_allocated=size) for size in sizes], **options)


def test_a_leak_is_found_and_its_pace_told() -> None:
    noise = random.Random(1)
    sizes = [10 * GIB + step * 50 * MIB + noise.randrange(20 * MIB) for step in range(LONG)]
    trend = _checks(sizes)[-1].devices[0].trend
    assert trend.growing
    assert trend.by == "step"
    assert trend.per_step == pytest.approx(50 * MIB, rel=0.02)
    left = 80 * GIB - GIB - sizes[-1] - GIB  # Beside the segments 1 GiB, and 1 GiB of free pieces.
    assert trend.until_full == pytest.approx(left / trend.per_step, rel=0.01)
    assert "MM004" in codes(_checks(sizes)[-1])


@pytest.mark.parametrize(
    "sizes",
    [
        [10 * GIB] * LONG,
        [(2 + min(step, 5)) * GIB for step in range(LONG)],
        [10 * GIB + (20 * GIB if step >= LONG // 2 else 0) for step in range(LONG)],
        [10 * GIB + (step % 10) * GIB for step in range(LONG)],
        [10 * GIB + step * 512 for step in range(LONG)],
        [30 * GIB - step * 50 * MIB for step in range(LONG)],
    ],
    ids=["flat", "warm-up", "one jump", "sawtooth", "rounding", "falling"],
)
def test_what_is_no_leak(sizes: list[int]) -> None:
    checks = _checks(sizes)
    assert not any("MM004" in codes(check) for check in checks)
    assert not checks[-1].devices[0].trend.growing


def test_growth_that_began_late_is_found() -> None:
    """130 steps of 200 are flat: of the whole window most pairs of checks say nothing."""
    noise = random.Random(3)
    sizes = [10 * GIB + max(0, step - 130) * 40 * MIB + noise.randrange(200 * MIB) for step in range(200)]
    checks = _checks(sizes)
    assert not any(check.devices[0].trend.growing for check in checks[20:130])
    trend = checks[-1].devices[0].trend
    assert trend.growing
    assert trend.per_step == pytest.approx(40 * MIB, rel=0.1)
    assert "MM004" in codes(checks[-1])


@pytest.mark.parametrize("seed", range(3))
def test_a_jump_under_noise_is_no_leak(seed: int) -> None:
    noise = random.Random(seed)
    sizes = [10 * GIB + noise.randrange(200 * MIB) + (GIB if step >= 150 else 0) for step in range(300)]
    growing = [check.number for check in _checks(sizes) if (trend := check.devices[0].trend) and trend.growing]
    assert growing == []


def test_what_comes_before_the_first_step_is_set_up() -> None:
    history: list = []
    for number in range(80):
        size = min(1 + number // 2, 20) * GIB
        step = number - 40 if number >= 40 else None
        limits = Thresholds(warm_up=5)
        now = reading(card(allocated=size, peak_allocated=size), seconds=float(number))
        history.append(judge(now, history, None, limits, step=step))
    assert all("MM004" not in codes(check) for check in history[40:])
    assert {check.devices[0].trend.by for check in history[60:]} == {"step"}


@settings(max_examples=30)
@given(sizes=st.lists(st.integers(0, 60 * GIB), min_size=60, max_size=60), seed=st.integers())
def test_shuffled_sizes_do_not_grow(sizes: list[int], seed: int) -> None:
    """By chance once in 30,000 windows: none of some thousand."""
    random.Random(seed).shuffle(sizes)
    trend = _checks(sizes)[-1].devices[0].trend
    assert trend is not None
    assert not trend.growing or _agreement(sizes) > 0.5


def _agreement(sizes: list[int]) -> float:
    """Kendall's tau of the points that were chosen, or near them; an adversary may shuffle into order."""
    pairs = list(itertools.combinations(sizes[5:], 2))
    return sum((later > earlier) - (later < earlier) for earlier, later in pairs) / len(pairs)


@given(
    sizes=st.lists(st.integers(0, 1 << 40), min_size=12, max_size=24),
    gaps=st.lists(st.integers(1, 50), min_size=24, max_size=24),
)
def test_the_slope_is_the_median_of_all_slopes(sizes: list[int], gaps: list[int]) -> None:
    times = list(itertools.accumulate(gaps[: len(sizes)]))
    points = [(Point(time, float(time)), size) for time, size in zip(times, sizes, strict=True)]
    first, second = np.triu_indices(len(sizes), 1)
    x, y = np.array(times, float), np.array(sizes, float)
    expected = float(np.median((y[second] - y[first]) / (x[second] - x[first])))
    found = trend_of(points, GIB)
    assert found.per_step == pytest.approx(expected)
    assert found.checks == len(sizes)
    assert (found.until_full is not None) == found.growing


def test_without_steps_the_pace_is_by_the_second() -> None:
    checks = _checks([10 * GIB + step * 50 * MIB for step in range(LONG)], steps=False)
    assert checks[-1].devices[0].trend.by == "second"


def test_too_few_checks_have_no_trend() -> None:
    limits = Thresholds()
    checks = _checks([GIB] * 40)
    first = next(check.number for check in checks if check.devices[0].trend is not None)
    assert limits.warm_up < first < 20


def test_a_trend_that_is_far_from_full_is_no_warning() -> None:
    sizes = [GIB + step * MIB for step in range(LONG)]
    check = _checks(sizes)[-1]
    assert check.devices[0].trend.growing
    assert "MM004" not in codes(check)
