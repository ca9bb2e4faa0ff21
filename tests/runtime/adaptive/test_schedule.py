"""Batches that grow: by factors with a rate per sample that decays as with a fixed batch, or by equal parts."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from memplan.errors import UsageError
from memplan.runtime.adaptive.schedule import AdaBatch, LinearBatch, phase_at

schedules = st.builds(
    lambda batch, interval, growth, decay, room: AdaBatch(
        batch=batch, learning_rate=0.1, interval=interval, growth=growth, decay=decay,
        most=None if room is None else batch * room,
    ),
    st.integers(1, 512), st.integers(1, 30), st.integers(1, 4), st.floats(0.1, 1.0), st.none() | st.integers(1, 64),
)  # fmt: skip


def test_the_schedule_of_the_paper() -> None:
    # Section 4.1: ResNet and others on CIFAR-100, 128 samples, doubled every 20 epochs, the rate times 0.75.
    schedule = AdaBatch(batch=128, learning_rate=0.01, interval=20)
    assert [phase_at(schedule, epoch).batch for epoch in (0, 19, 20, 40, 60, 80)] == [128, 128, 256, 512, 1024, 2048]
    assert phase_at(schedule, 99).learning_rate == pytest.approx(0.01 * 0.75**4)


@given(schedule=schedules, moment=st.integers(0, 300))
def test_the_rate_per_sample_decays_alike_whatever_the_batch(schedule: AdaBatch, moment: int) -> None:
    phase = phase_at(schedule, moment)
    changes = moment // schedule.interval
    per_sample = phase.learning_rate / phase.batch
    assert per_sample == pytest.approx(0.1 / schedule.batch * schedule.decay**changes)
    assert schedule.batch <= phase.batch <= (schedule.most or phase.batch)
    assert phase.batch <= phase_at(schedule, moment + 1).batch


def test_what_makes_no_sense_is_named() -> None:
    with pytest.raises(UsageError) as caught:
        AdaBatch(batch=8, learning_rate=0, interval=0, growth=0, decay=0, most=4)
    assert all(word in str(caught.value) for word in ("batch", "learning_rate", "interval", "growth", "decay"))


def test_a_linear_schedule_adds_the_same_in_each_epoch() -> None:
    schedule = LinearBatch(batch=64, learning_rate=0.1, growth=0.5, most=200)
    assert [phase_at(schedule, epoch).batch for epoch in range(6)] == [64, 96, 128, 160, 192, 200]
    assert phase_at(schedule, 2).learning_rate == pytest.approx(0.2)
    assert phase_at(schedule, -1) == phase_at(schedule, 0)


@given(
    batch=st.integers(1, 512), growth=st.floats(0, 3), room=st.none() | st.integers(1, 64), moment=st.integers(0, 300)
)
def test_a_linear_schedule_keeps_the_rate_per_sample(batch: int, growth: float, room: int | None, moment: int) -> None:
    schedule = LinearBatch(batch=batch, learning_rate=0.1, growth=growth, most=None if room is None else batch * room)
    phase, later = phase_at(schedule, moment), phase_at(schedule, moment + 1)
    assert phase.learning_rate / phase.batch == pytest.approx(0.1 / batch)
    assert batch <= phase.batch <= later.batch <= (schedule.most or later.batch)


def test_what_makes_no_sense_of_a_linear_schedule_is_named() -> None:
    with pytest.raises(UsageError) as caught:
        LinearBatch(batch=8, learning_rate=0, growth=-1, most=4)
    assert all(word in str(caught.value) for word in ("batch", "learning_rate", "growth"))
