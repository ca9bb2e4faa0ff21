"""A batch that follows the noise scale: laws of B ← clip(alpha · B_opt + (1 - alpha) · B)."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from memplan.errors import UsageError
from memplan.runtime.adaptive.noise_batch import NoisePolicy, batch_of, next_wanted
from memplan.runtime.adaptive.noise_scale import NoiseScale, moments_of, with_step

policies = st.builds(
    lambda least, room, smoothing, multiple: NoisePolicy(
        least=least * multiple, most=(least + room) * multiple, smoothing=smoothing, multiple=multiple
    ),
    st.integers(1, 64), st.integers(0, 4096), st.floats(0.01, 1.0), st.integers(1, 32),
)  # fmt: skip


def test_one_change_by_hand() -> None:
    policy = NoisePolicy(least=16, most=400, smoothing=0.25)
    assert next_wanted(policy, 100.0, 500.0) == 200.0
    assert next_wanted(policy, 380.0, 1000.0) == 400.0
    assert next_wanted(policy, 20.0, 1.0) == 16.0


@given(policy=policies, wanted=st.floats(1, 1e6), scale=st.floats(0.1, 1e7))
def test_a_batch_stays_within_bounds_and_is_whole(policy: NoisePolicy, wanted: float, scale: float) -> None:
    new = next_wanted(policy, wanted, scale)
    assert policy.least <= new <= policy.most
    batch = batch_of(policy, new)
    assert policy.least <= batch <= policy.most
    assert batch % policy.multiple == 0
    assert abs(batch - new) <= policy.multiple / 2 + 1e-6


@given(policy=policies, start=st.floats(0, 1), goal=st.floats(0, 1))
def test_a_scale_that_stays_is_approached_by_the_same_share_each_time(
    policy: NoisePolicy, start: float, goal: float
) -> None:
    room = policy.most - policy.least
    wanted, scale = policy.least + start * room, policy.least + goal * room
    before = abs(wanted - scale)
    for changes in range(1, 6):
        wanted = next_wanted(policy, wanted, scale)
        assert abs(wanted - scale) == pytest.approx(before * (1 - policy.smoothing) ** changes, abs=1e-6)


def test_small_changes_add_up() -> None:
    """A rounded batch would stay at 10 for ever: a twentieth of the way to 12 is a tenth of a sample."""
    policy, wanted = NoisePolicy(most=64, smoothing=0.05), 10.0
    for _ in range(100):
        wanted = next_wanted(policy, wanted, 12.0)
    assert batch_of(policy, wanted) == 12


def test_averages_are_taken_once_they_are_known() -> None:
    policy = NoisePolicy(most=64, smoothing=0.5)
    assert next_wanted(policy, 32.0, NoiseScale()) == 32.0
    known = with_step(NoiseScale(), moments_of(small=3.0, small_batch=8, big=1.5, big_batch=32))
    assert next_wanted(policy, 32.0, known) == 24.0


def test_what_makes_no_sense_is_named() -> None:
    with pytest.raises(UsageError) as caught:
        NoisePolicy(least=9, most=8, smoothing=0, multiple=16)
    assert all(word in str(caught.value) for word in ("least", "smoothing", "multiple"))
    with pytest.raises(UsageError, match="positive"):
        next_wanted(NoisePolicy(most=8), 4.0, float("nan"))
