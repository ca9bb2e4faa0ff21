"""Laws of putting batches together."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from memplan.errors import UsageError
from memplan.findings.utilization import THRESHOLDS
from memplan.plan.batch.headroom import limit_of
from memplan.plan.batch.split import adaptive_schedule, critical_batch, linear_schedule, splits


@given(share=st.integers(1, 500), ranks=st.integers(1, 64))
def test_every_split_is_whole(share: int, ranks: int) -> None:
    for split in splits(share * ranks, ranks):
        assert split.micro_batch * split.grad_accum * split.ranks == share * ranks


@given(share=st.integers(1, 300))
def test_every_divisor_is_offered_once(share: int) -> None:
    offered = [split.micro_batch for split in splits(share, 1)]
    assert offered == [size for size in range(share, 0, -1) if share % size == 0]


def test_ranks_share_evenly_or_not_at_all() -> None:
    with pytest.raises(UsageError, match="evenly"):
        list(splits(10, 4))


@given(noise=st.floats(1, 1e6), batch=st.integers(1, 10**6))
def test_steps_and_samples_trade_as_the_paper_says(noise: float, batch: int) -> None:
    cost = critical_batch(noise, batch)
    # (S / S_min - 1)(E / E_min - 1) = 1, equation 2.7.
    assert cost.extra_steps * cost.extra_samples == pytest.approx(1)


def test_at_the_critical_batch_both_cost_as_much_again() -> None:
    cost = critical_batch(256, 256)
    assert (cost.extra_steps, cost.extra_samples) == (1, 1)


@given(first=st.integers(1, 100), times=st.integers(1, 50), phases=st.integers(1, 9))
def test_schedules_grow_to_the_last_batch(first: int, times: int, phases: int) -> None:
    last = first * times
    linear, adaptive = linear_schedule(first, last, phases), adaptive_schedule(first, last)
    for schedule in (linear, adaptive):
        batches, starts = [phase.batch for phase in schedule], [phase.start for phase in schedule]
        assert batches == sorted(batches)
        assert starts[0] == 0
        assert starts == sorted(set(starts))
        assert batches[-1] <= last
    assert linear[-1].batch == last
    assert 2 * adaptive[-1].batch > last


def test_presets_rise_and_name_their_share(profile_of_80_gb) -> None:
    for name, shares in THRESHOLDS.items():
        assert shares.target < shares.warn < shares.critical < shares.emergency < 1
        assert limit_of(profile_of_80_gb, name) == int(profile_of_80_gb.usable_bytes * shares.target)
    assert limit_of(profile_of_80_gb, None) == profile_of_80_gb.usable_bytes
