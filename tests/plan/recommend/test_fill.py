"""A batch that fills the device."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from memplan.errors import UsageError
from memplan.hardware.catalog import load_profile
from memplan.hardware.profile import GpuProfile
from memplan.job.spec import FileTarget, JobSpec
from memplan.plan.batch.compose import largest_batches
from memplan.plan.recommend import bases
from memplan.plan.recommend.records import Search
from tests.plan.recommend.models import MODEL


@pytest.fixture
def job(tmp_path: Path) -> JobSpec:
    (tmp_path / "deep.py").write_text(MODEL, encoding="utf-8")
    return JobSpec(target=FileTarget(path=tmp_path / "deep.py"), batch_size=8)


@pytest.fixture
def profile() -> GpuProfile:
    return replace(load_profile("rtx-3060"), usable_bytes=3 << 29)


class Largest:
    """What is asked of the search for the largest batch, and its answer."""

    def __init__(self, value: int) -> None:
        self.value = value
        self.asked: list[tuple[JobSpec, str | None]] = []

    def __call__(self, spec: JobSpec, profiles: Any, *, utilization: str, **_: Any) -> "tuple[Largest]":
        self.asked.append((spec, utilization))
        return (self,)


@pytest.mark.parametrize("gpus", [1, 4])
def test_the_batch_is_the_largest_of_the_job_on_its_ranks(
    job: JobSpec,
    profile: GpuProfile,
    gpus: int,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    largest = Largest(37)
    monkeypatch.setattr(bases, "largest_batches", largest)
    made = bases.filled(job, profile, Search(gpus=gpus), "aggressive", timeout=60)
    assert made == replace(job, batch_size=37)
    ((asked, utilization),) = largest.asked
    assert utilization == "aggressive"
    # Where the layout is left open, the one whose ranks share the state: copies of it leave less for the batch.
    assert (asked.parallel.ranks, asked.parallel.shards) == (gpus, gpus)


def test_a_job_of_which_no_sample_fits_cannot_fill_a_device(
    job: JobSpec,
    profile: GpuProfile,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(bases, "largest_batches", Largest(0))
    with pytest.raises(UsageError, match="not even one sample"):
        bases.filled(job, profile, Search(), "balanced", timeout=60)


@pytest.mark.slow
def test_the_device_is_filled_to_its_target(job: JobSpec, profile: GpuProfile) -> None:
    made = bases.filled(replace(job, batch_size=1), profile, Search(), "balanced", timeout=600)
    [answer] = largest_batches(made, (profile,), utilization="balanced")
    assert answer.value == made.batch_size
    assert answer.next_device_bytes is not None
    assert answer.device_bytes <= 0.9 * profile.usable_bytes < answer.next_device_bytes
