"""What is tried first, and when a split of the batch is another computation."""

from pathlib import Path

import pytest
from hypothesis import given as each_of
from hypothesis import strategies as st

from memplan.hardware.catalog import load_profile
from memplan.job.spec import FileTarget, JobSpec, PresetTarget
from memplan.lifetime.records import Category
from memplan.plan.recommend.changes import single_changes
from memplan.plan.recommend.evaluate import Outcome, evaluate_here
from memplan.plan.recommend.order import GUESSES, urgency
from memplan.plan.recommend.records import Candidate, Evaluated, Group, Limits, Search
from memplan.plan.recommend.space import bases, combine, is_allowed, with_changes
from memplan.plan.time.records import StepTime
from memplan.units import GIB, Bytes

JOB = JobSpec(target=PresetTarget(name="gpt2"), batch_size=8)
GIVEN = bases(JOB, Search())[0]
SECOND = StepTime(
    compute=1.0, optimizer=0.0, launch=0.0, communication=0.0, exposed_communication=0.0, offload=0.0, bubble=0.0,
    total=1.0,
)  # fmt: skip


def _given(*, fits: bool, activations: int, states: int) -> Outcome:
    total = Bytes(activations + states)
    evaluated = Evaluated(
        candidate=GIVEN, device_bytes=total, high_bytes=total, allocated_bytes=total, reserved_bytes=total,
        host_bytes=Bytes(0), fits=fits, reason="", time=SECOND, cost=1.0, traced_micro_batches=1,
    )  # fmt: skip
    breakdown = {str(Category.ACTIVATION): activations, str(Category.OPTIMIZER_STATE): states}
    return Outcome(candidate=GIVEN, evaluated=evaluated, reason="", breakdown=breakdown)


def _words(outcome: Outcome, limit: float) -> list[str]:
    alone = [with_changes(GIVEN, (change,)) for change in single_changes(JOB, 1)]
    halves = [each.candidate for each in combine(GIVEN, (), Search()) if each.candidate.spec.batch_size == 4]
    return [each.words for each in sorted([*halves, *alone], key=lambda each: urgency(outcome, each, limit))]


def test_where_the_job_fits_splits_come_last() -> None:
    order = _words(_given(fits=True, activations=20 * GIB, states=10 * GIB), 40 * GIB)
    assert order[-1] == "--batch-size 4 --grad-accum 2"
    assert order.index("--checkpoint full") < order.index("--offload-activations")


def test_where_it_does_not_what_should_fit_comes_first() -> None:
    activations = _words(_given(fits=False, activations=30 * GIB, states=2 * GIB), 20 * GIB)
    assert activations[0] == "--batch-size 4 --grad-accum 2"
    states = _words(_given(fits=False, activations=2 * GIB, states=30 * GIB), 20 * GIB)
    assert "--optimizer" in states[0] or "--lora" in states[0]
    assert states.index("--checkpoint full") > states.index("--optimizer adamw-8bit")


@each_of(groups=st.sets(st.sampled_from(tuple(GUESSES))))
def test_statistics_of_the_batch_make_a_split_a_change_of_numerics(groups: set[Group]) -> None:
    (half,) = [each.candidate for each in combine(GIVEN, (), Search()) if each.candidate.spec.batch_size == 4]
    search = Search(allow=tuple(groups))
    assert is_allowed(half, GIVEN, search, batch_statistics=False)
    assert is_allowed(half, GIVEN, search, batch_statistics=True) == ("split" in groups)


MODEL = """
import torch

def model():
    return torch.nn.Sequential(torch.nn.Conv2d(3, 4, 3), torch.nn.{norm}, torch.nn.Flatten(), torch.nn.Linear(3600, 2))

def batch(batch_size):
    return torch.randn(batch_size, 3, 32, 32)

def loss(output, batch):
    return output.mean()
"""


@pytest.mark.parametrize(
    ("norm", "mode", "expected"),
    [("BatchNorm2d(4)", "train", True), ("GroupNorm(2, 4)", "train", False), ("BatchNorm2d(4)", "inference", False)],
)
def test_statistics_of_the_batch_are_seen(tmp_path: Path, norm: str, mode: str, *, expected: bool) -> None:
    path = tmp_path / "net.py"
    path.write_text(MODEL.format(norm=norm), encoding="utf-8")
    job = JobSpec(target=FileTarget(path=path), batch_size=2, mode=mode)  # type: ignore[arg-type]
    outcome = evaluate_here(Candidate(spec=job, changes=()), load_profile("rtx-4090"), Limits())
    assert outcome.evaluated is not None, outcome.reason
    assert outcome.batch_statistics is expected
