"""Laws of the controller: within bounds, monotone, and at rest."""

import math
from collections.abc import Callable
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from memplan.errors import UsageError
from memplan.runtime.adaptive.controller import BatchPolicy, BatchState, next_batch, workload_changed

policies = st.builds(
    lambda least, span, patience, growth: BatchPolicy(least=least, most=least + span, patience=patience, growth=growth),
    st.integers(1, 50), st.integers(0, 500), st.integers(1, 4), st.floats(1.1, 4.0),
)  # fmt: skip
readings = st.floats(0, 3) | st.just(math.inf)


def sizes(policy: BatchPolicy, first: int, use_of: Callable[[int, int], float], steps: int) -> list[BatchState]:
    states = [BatchState(size=first)]
    for step in range(steps):
        states.append(next_batch(policy, states[-1], use_of(step, states[-1].size)))
    return states


@given(policy=policies, first=st.integers(1, 1000), uses=st.lists(readings, min_size=1, max_size=200))
def test_within_bounds_and_changes_come_to_an_end_whatever_is_read(
    policy: BatchPolicy, first: int, uses: list[float]
) -> None:
    states = sizes(policy, first, lambda step, _: uses[step % len(uses)], 2000)
    assert all(policy.least <= state.size <= policy.most for state in states[1:])
    for before, state in pairwise(states[1:]):
        if state.size > before.size:
            assert state.size < (state.over or math.inf)
        if state.size < before.size:
            # What it may grow to is lower than ever, so that there are no more of these than sizes.
            assert state.over == before.size < (before.over or math.inf)


@given(
    policy=policies,
    state=st.builds(BatchState, size=st.integers(1, 600), over=st.none() | st.integers(2, 600), low=st.integers(0, 5)),
    one=readings,
    other=readings,
)
def test_more_use_never_makes_a_larger_batch(policy: BatchPolicy, state: BatchState, one: float, other: float) -> None:
    smaller, larger = sorted((one, other))
    assert next_batch(policy, state, smaller).size >= next_batch(policy, state, larger).size


@given(
    policy=policies,
    first=st.integers(1, 600),
    fixed=st.floats(0, 0.8),
    slope=st.floats(0.0005, 0.5),
    power=st.floats(0.5, 2),
    noise=st.lists(st.floats(-0.01, 0.01), min_size=1, max_size=50),
)
def test_it_comes_to_rest_at_a_memory_that_grows(
    policy: BatchPolicy, first: int, fixed: float, slope: float, power: float, noise: list[float]
) -> None:
    def true_use(size: int) -> float:
        return fixed + slope * size**power

    steps = 1500
    states = sizes(policy, first, lambda step, size: max(0.0, true_use(size) + noise[step % len(noise)]), steps)
    rest = states[-1]
    assert {state.size for state in states[-200:]} == {rest.size}
    use, low, high = true_use(rest.size), policy.target - policy.slack, policy.target + policy.slack
    assert use <= high + 0.01 or rest.size == policy.least
    if use < low - 0.01 and rest.size != policy.most:
        # Not in the band only where the next size was too much.
        assert rest.over == rest.size + 1
        assert true_use(rest.size + 1) >= high - 0.01


def test_a_step_function_is_not_climbed_again_and_again() -> None:
    def use(_: int, size: int) -> float:
        return 0.5 if size <= 10 else 0.99

    states = sizes(BatchPolicy(most=100), 4, use, 300)
    changes = [state.size for state, before in zip(states[1:], states, strict=False) if state.size != before.size]
    assert states[-1].size == 10
    assert len(changes) < 12
    assert max(changes) <= 16


def test_growth_stays_below_the_target_where_memory_is_a_straight_line() -> None:
    states = sizes(BatchPolicy(most=1000, patience=1), 10, lambda _, size: 0.3 + 0.001 * size, 50)
    assert states[-1].over is None
    assert 550 <= states[-1].size <= 600


def test_running_out_halves_and_noise_in_the_band_does_nothing() -> None:
    policy = BatchPolicy(most=100)
    assert next_batch(policy, BatchState(size=64), math.inf).size == 32
    assert {next_batch(policy, BatchState(size=64), 0.9 + noise).size for noise in (-0.049, 0, 0.049)} == {64}
    assert next_batch(policy, BatchState(size=64), 0.5).size == 64  # Patience.


def test_other_work_may_need_less() -> None:
    policy = BatchPolicy(most=100, patience=1)
    state = next_batch(policy, BatchState(size=50), 1.0)
    for _ in range(10):
        state = next_batch(policy, state, 0.3)
    assert state.size == 49
    assert next_batch(policy, workload_changed(state), 0.3).size > 49


def test_what_makes_no_sense_is_named() -> None:
    with pytest.raises(UsageError) as caught:
        BatchPolicy(least=0, most=-1, target=0.99, patience=0, growth=1.0)
    assert all(word in str(caught.value) for word in ("least", "target", "patience", "growth"))
    with pytest.raises(UsageError, match="cannot be nan"):
        next_batch(BatchPolicy(most=3), BatchState(size=1), math.nan)
