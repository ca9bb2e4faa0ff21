"""A small job searched for real: every row is what ``estimate`` says of it, and nothing better was left out.

Candidates are evaluated in this process, since processes of their own each import torch first; slow tests and
``test_workers`` use real ones.
"""

from collections.abc import Iterator, Sequence
from dataclasses import replace

import pytest

from memplan.errors import MemplanError, UsageError
from memplan.hardware.catalog import load_profile
from memplan.hardware.profile import GpuProfile
from memplan.job.spec import FileTarget, JobSpec, PresetTarget
from memplan.measure.local import estimate_here
from memplan.plan.recommend import flow
from memplan.plan.recommend.compose import recommend
from memplan.plan.recommend.evaluate import Evaluation, evaluate_here
from memplan.plan.recommend.records import Candidate, Recommendation, Search, StepLimits
from memplan.plan.recommend.workers import Workers
from tests.plan.recommend.models import MODEL
from tests.tracing.sharding.toy import needs_recent_torch


class Here(Workers):
    """Evaluates one candidate after another."""

    def run(self, candidates: Sequence[Candidate], *_: object, **__: object) -> Iterator[Evaluation]:
        for each in candidates:
            yield evaluate_here(each, self._profile, self._limits)


@pytest.fixture(scope="module", autouse=True)
def in_this_process() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(flow, "Workers", Here)
        yield


@pytest.fixture(scope="module")
def job(tmp_path_factory: pytest.TempPathFactory) -> JobSpec:
    path = tmp_path_factory.mktemp("recommend") / "deep.py"
    path.write_text(MODEL, encoding="utf-8")
    return JobSpec(target=FileTarget(path=path), batch_size=8)


@pytest.fixture(scope="module")
def profile() -> GpuProfile:
    """The job as given needs about 2 GiB."""
    return replace(load_profile("rtx-3060"), usable_bytes=3 << 29)


@pytest.fixture(scope="module")
def answer(job: JobSpec, profile: GpuProfile) -> Recommendation:
    keep = ("offload", "loss", "optimizer", "lora", "quantize")
    return recommend(job, profile, Search(processes=2, budget_seconds=600, keep=keep))


def test_it_does_not_fit_and_something_does(answer: Recommendation) -> None:
    assert answer.ended == "complete"
    assert answer.baseline is not None
    assert not answer.baseline.fits
    assert answer.best is not None
    assert answer.cheapest is not None
    assert answer.cheapest.fits


def test_a_wrong_target_is_the_users_error(profile: GpuProfile, tmp_path_factory: pytest.TempPathFactory) -> None:
    path = tmp_path_factory.mktemp("wrong") / "empty.py"
    path.write_text("x = 1", encoding="utf-8")
    with pytest.raises(UsageError):
        recommend(JobSpec(target=FileTarget(path=path)), profile, Search(processes=2))


def test_rows_are_ranked_confirmed_and_of_one_batch(answer: Recommendation, profile: GpuProfile) -> None:
    assert [row.cost for row in answer.rows] == sorted(row.cost for row in answer.rows)
    assert {row.candidate.global_batch for row in answer.rows} == {8}
    best = answer.rows[0]
    (alone,) = estimate_here(best.candidate.spec, [profile], advice=False)
    assert alone.peak.device_bytes == best.device_bytes
    assert alone.verdict == "fits"


def test_the_front_holds_what_nothing_beats(answer: Recommendation) -> None:
    rates = [each.samples_per_second for each in answer.pareto]
    sizes = [each.device_bytes for each in answer.pareto]
    assert rates == sorted(set(rates))
    assert sizes == sorted(set(sizes))
    for row in answer.rows:
        assert any(
            each.device_bytes <= row.device_bytes and each.samples_per_second >= row.samples_per_second
            for each in answer.pareto
        )


def test_single_changes_are_told_with_their_reason(answer: Recommendation) -> None:
    words = {each.candidate.words: each for each in answer.what_ifs}
    assert words["--checkpoint full"].saved_bytes is not None
    assert words["--checkpoint full"].saved_bytes > 0
    assert words["--checkpoint full"].extra_time is not None
    assert words["--checkpoint full"].extra_time > 0
    assert not words["--precision bf16"].allowed
    for each in answer.what_ifs:
        assert (each.saved_bytes is None) == bool(each.reason)


@pytest.mark.slow
def test_where_nothing_fits_what_more_would_have_to_be_allowed_is_said(job: JobSpec, profile: GpuProfile) -> None:
    keep = ("checkpoint", "split", "offload", "loss", "lora", "quantize")
    search = Search(processes=2, budget_seconds=600, keep=keep)
    answer = recommend(job, profile, search)
    assert answer.best is None
    assert [remedy.allow for remedy in answer.remedies] == [("precision",)]
    (remedy,) = answer.remedies
    assert remedy.evaluated.fits
    assert {"--precision bf16", "--precision bf16-mixed"} & set(remedy.evaluated.candidate.changes)
    # What was said is what comes of it.
    allowed = recommend(job, profile, replace(search, allow=("precision",)))
    assert allowed.best is not None
    assert allowed.best.cost <= remedy.evaluated.cost
    assert not allowed.remedies


@pytest.mark.slow
def test_limits_are_kept_and_memory_can_be_what_counts(
    job: JobSpec, profile: GpuProfile, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(flow, "Workers", Workers)
    search = Search(
        processes=2, budget_seconds=600, alpha=1.0, beta=0.0, keep=("offload", "loss", "parallel"),
        limits=StepLimits(utilization="conservative"),
    )  # fmt: skip
    answer = recommend(job, profile, search)
    assert answer.best is not None
    assert answer.best.device_bytes <= 0.85 * profile.usable_bytes
    assert answer.best.device_bytes == min(row.device_bytes for row in answer.rows)
    assert not [row for row in answer.rows if {"offload", "loss"} & set(row.candidate.groups)]


@needs_recent_torch
def test_ranks_that_must_share_layers_and_cannot_are_told_why(profile: GpuProfile) -> None:
    """Nobody has typed tensor parallelism."""
    job = JobSpec(target=PresetTarget(name="distilgpt2"), batch_size=1)
    with pytest.raises(MemplanError, match="no layers whose names") as found:
        recommend(job, profile, Search(gpus=16, target_batch=4, processes=2))
    assert "--target-batch 16" in str(found.value)
