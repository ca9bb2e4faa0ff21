"""Advice ends where its traces have become as many ops as anybody waits for."""

import dataclasses
from pathlib import Path

import pytest

from memplan.errors import EstimateError
from memplan.hardware.catalog import load_profile
from memplan.job.spec import JobSpec
from memplan.job.target import parse_target
from memplan.measure import local
from memplan.measure.advice import TimedEstimate, advise
from memplan.measure.records import Verdict
from tests.measure.targets import LIMIT, TARGET
from tests.report.example_estimates import make_estimate

SIZES = {"usable_bytes": LIMIT, "total_bytes": LIMIT, "context_low_bytes": 0, "context_high_bytes": 0}


@pytest.mark.parametrize(("ops", "traces"), [(0, 1), (1, 2)])
def test_changes_are_tried_until_the_ops_are_used_up(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, ops: int, traces: int
) -> None:
    target = tmp_path / "net.py"
    target.write_text(TARGET)
    spec = JobSpec(target=parse_target(str(target)), batch_size=8192)
    monkeypatch.setattr(local, "MOST_OPS_OF_ADVICE", ops)
    told: list[str] = []
    (answer,) = local.estimate_here(spec, [dataclasses.replace(load_profile("t4"), **SIZES)], progress=told.append)
    assert answer.verdict is Verdict.OOM
    assert sum(text.endswith("building the model") for text in told) == traces
    assert all(text.startswith("t4: OOM at ") == (text != "building the model") for text in told if "building" in text)
    assert local.NOT_ALL_TRIED in answer.assumptions
    assert [advice.change for advice in answer.advice] == ["--checkpoint full"][: traces - 1]


def test_all_gpus_share_what_may_be_tried(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also the verdicts of the later ones come before any change is tried."""
    target = tmp_path / "net.py"
    target.write_text(TARGET)
    spec = JobSpec(target=parse_target(str(target)), batch_size=8192)
    monkeypatch.setattr(local, "MOST_OPS_OF_ADVICE", 1)
    told: list[str] = []
    cards = [dataclasses.replace(load_profile(name), **SIZES) for name in ("t4", "a100-40g", "t4")]
    first, *others = local.estimate_here(spec, cards, progress=told.append)
    assert {answer.verdict for answer in (first, *others)} == {Verdict.OOM}
    assert [advice.change for advice in first.advice] == ["--checkpoint full"]
    assert [answer.advice for answer in others] == [(), ()]
    tried = [index for index, text in enumerate(told) if "what would fit?" in text]
    assert tried[0] > max(index for index, text in enumerate(told) if text == "building the model")


def test_a_batch_that_was_found_stands_when_no_further_one_can_be_tried() -> None:
    base = make_estimate()
    tried: list[int] = []

    def attempt(spec: JobSpec) -> TimedEstimate:
        if tried:
            raise EstimateError("no time")
        tried.append(spec.batch_size)
        return TimedEstimate(spec, dataclasses.replace(base, verdict=Verdict.FITS), 1.0)

    spec = JobSpec(target=parse_target("preset:x"), batch_size=64, mode="inference", precision="bf16")
    found = advise(TimedEstimate(spec, dataclasses.replace(base, verdict=Verdict.OOM), 1.0), attempt)
    assert [advice.change for advice in found] == ["--batch-size 32"]
