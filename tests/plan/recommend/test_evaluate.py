"""One candidate that fails, in whatever way, is that candidate's outcome alone."""

from pathlib import Path

import pytest

from memplan.errors import EstimateError, UsageError
from memplan.hardware.catalog import load_profile
from memplan.job.spec import FileTarget, JobSpec
from memplan.measure.local import estimate_here
from memplan.plan.recommend import evaluate
from memplan.plan.recommend.evaluate import attempt, evaluate_here, not_traced
from memplan.plan.recommend.records import Candidate, StepLimits
from tests.plan.recommend.models import MODEL

PROFILE = load_profile("rtx-4090")


def _job(folder: Path) -> JobSpec:
    path = folder / "deep.py"
    path.write_text(MODEL, encoding="utf-8")
    return JobSpec(target=FileTarget(path=path), batch_size=8)


@pytest.mark.parametrize("kind", [AssertionError, KeyError, RecursionError, SystemExit])
def test_an_unexpected_exception_is_an_outcome(
    kind: type[BaseException], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    def broken(*_: object, **__: object) -> None:
        raise kind("all ranks must agree")

    # Beyond the trace itself, which explains what user code and torch raise.
    monkeypatch.setattr(evaluate, "phase_peaks", broken)
    candidate = Candidate(spec=_job(tmp_path), changes=())
    outcome = evaluate_here(candidate, PROFILE, StepLimits())
    assert outcome.candidate is candidate
    assert outcome.evaluated is None
    assert isinstance(outcome.error, EstimateError)
    assert "all ranks must agree" in outcome.reason
    assert kind is SystemExit or kind.__name__ in outcome.reason


def test_errors_for_the_user_stay_what_they_are(tmp_path: Path) -> None:
    candidate = Candidate(spec=_job(tmp_path), changes=())
    given = UsageError("no such thing", where="--option", hint="another")

    def broken() -> evaluate.Evaluation:
        raise given

    outcome = attempt(candidate, broken)
    assert outcome.error is given
    assert outcome.reason == "no such thing (--option)"
    assert attempt(candidate, lambda: not_traced(candidate, "why")).reason == "why"


PADDED = """
import torch
class Model(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.up, self.down = torch.nn.Linear(512, 2048), torch.nn.Linear(2048, 512)
    def forward(self, x):
        x = torch.nn.functional.pad(x, (0, 0, 0, 0, 0, -len(x) % 8))
        return self.down(torch.relu(self.up(x)))
def model():
    return Model()
def batch(batch_size):
    return torch.randn(batch_size, 256, 512)
def loss(output, batch):
    return output.float().mean()
"""
"""The allocator needs more in the fourth micro-batch than in the third, which repeats the second."""


def test_of_many_micro_batches_a_search_says_what_an_estimate_says(tmp_path: Path) -> None:
    path = tmp_path / "padded.py"
    path.write_text(PADDED, encoding="utf-8")
    spec = JobSpec(target=FileTarget(path=path), batch_size=1, grad_accum=12)
    found = evaluate_here(Candidate(spec=spec, changes=()), PROFILE, StepLimits()).evaluated
    assert found is not None
    (alone,) = estimate_here(spec, [PROFILE], advice=False)
    assert (found.device_bytes, found.high_bytes) == (alone.peak.device_bytes, alone.peak.high_bytes)
    assert found.traced_micro_batches < spec.grad_accum
