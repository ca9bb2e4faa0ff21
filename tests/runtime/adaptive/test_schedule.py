"""AdaBatch: the batch grows, and the rate per sample decays as with a fixed batch."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from memplan.errors import UsageError
from memplan.runtime.adaptive.schedule import AdaBatch, phase_at

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
