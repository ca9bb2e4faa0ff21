"""What is predicted before and after something was traced, and when a split of the batch is another computation."""

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given as each_of
from hypothesis import strategies as st

from memplan.hardware.catalog import load_profile
from memplan.job.parallel import Parallel, parse_parallel
from memplan.job.spec import FileTarget, JobSpec, PresetTarget
from memplan.lifetime.records import Category
from memplan.plan.recommend.bases import bases
from memplan.plan.recommend.bounds import Bounds
from memplan.plan.recommend.changes import JobChange, layouts, single_changes
from memplan.plan.recommend.evaluate import Evaluation, evaluate_here, not_traced
from memplan.plan.recommend.guesses import GUESSES, Guess, guess
from memplan.plan.recommend.phases import Peaks
from memplan.plan.recommend.predict import Predictor, resized
from memplan.plan.recommend.records import Candidate, Evaluated, Group, Search, StepLimits
from memplan.plan.recommend.space import Combination, combine, is_allowed, wanting, with_changes
from memplan.timing.rates import StepTime
from memplan.units import GIB, Bytes

JOB = JobSpec(target=PresetTarget(name="gpt2"), batch_size=8)
GIVEN = bases(JOB, Search())[0]
CHANGES = {change.text: change for change in single_changes(JOB, 1)}
SECOND = StepTime(
    compute=1.0, optimizer=0.0, launch=0.0, communication=0.0, exposed_communication=0.0, offload=0.0, bubble=0.0,
    total=1.0,
)  # fmt: skip


def _outcome(peaks: Peaks, *texts: str, candidate: Candidate | None = None) -> Evaluation:
    """A trace that has exactly these peaks: nothing is lost to the allocator, and there is no context."""
    size = Bytes(round(max(sum(held.values()) for held in peaks.values())))
    made = candidate or with_changes(GIVEN, [CHANGES[text] for text in texts])
    evaluated = Evaluated(
        candidate=made, device_bytes=size, high_bytes=size, allocated_bytes=size, reserved_bytes=size,
        host_bytes=Bytes(0), fits=True, reason="", time=SECOND, cost=1.0, traced_micro_batches=1,
    )  # fmt: skip
    return Evaluation(candidate=made, evaluated=evaluated, reason="", peaks=peaks)


def _peaks(activations: float, states: float, temporaries: float = 0.0) -> Peaks:
    return {
        "backward": {Category.ACTIVATION: activations, Category.OPTIMIZER_STATE: states},
        "optimizer": {
            Category.OPTIMIZER_STATE: states,
            Category.GRADIENT: states / 2,
            Category.TEMPORARY: temporaries,
        },
    }


def _predictor(*outcomes: Evaluation) -> Predictor:
    predictor = Predictor(GIVEN, CHANGES, 0)
    for outcome in outcomes:
        predictor.learn(outcome)
    return predictor


def _way(*texts: str, batch: int = 8) -> Combination:
    changes = [CHANGES[text] for text in texts]
    found = combine(GIVEN, changes, Search())
    return next(each for each in found if set(each.changes) == set(changes) and each.candidate.spec.batch_size == batch)


def test_the_largest_phase_is_what_counts() -> None:
    predictor = _predictor(_outcome(_peaks(30 * GIB, 10 * GIB, temporaries=5 * GIB)))
    assert predictor.predict(_way()).device_bytes == 40 * GIB
    # Without activations the optimizer's step is the peak, and its temporaries with it.
    few = predictor.predict(_way("--checkpoint full")).device_bytes
    assert few == 20 * GIB
    assert predictor.predict(_way("--checkpoint full", "--optimizer-impl fused")).device_bytes == 16 * GIB


def test_traces_take_the_place_of_guesses() -> None:
    given = _outcome(_peaks(30.0 * GIB, 10.0 * GIB))
    seen = _outcome(_peaks(3.0 * GIB, 10.0 * GIB), "--checkpoint full")
    quarter = _outcome(_peaks(30.0 * GIB, 2.0 * GIB), "--optimizer adamw-8bit")
    together = _predictor(given, seen, quarter).predict(_way("--checkpoint full", "--optimizer adamw-8bit"))
    assert together.device_bytes == 5 * GIB


def test_what_a_change_did_is_seen_wherever_two_traces_differ_by_it() -> None:
    both = _outcome(_peaks(3.0 * GIB, 1.0 * GIB), "--checkpoint full", "--optimizer adamw-8bit")
    seen = _outcome(_peaks(3.0 * GIB, 10.0 * GIB), "--checkpoint full")
    predictor = _predictor(_outcome(_peaks(30.0 * GIB, 10.0 * GIB)), seen, both)
    assert predictor.predict(_way("--optimizer adamw-8bit")).device_bytes == 31 * GIB


def test_a_change_is_taken_to_do_what_it_did_in_the_likest_company() -> None:
    alone = _outcome(_peaks(30.0 * GIB, 10.0 * GIB), "--optimizer adamw-8bit")
    seen = _outcome(_peaks(3.0 * GIB, 10.0 * GIB), "--checkpoint full")
    both = _outcome(_peaks(3.0 * GIB, 1.0 * GIB), "--checkpoint full", "--optimizer adamw-8bit")
    parts = _outcome(_peaks(2.0 * GIB, 10.0 * GIB), "--checkpoint full", "--loss-chunks 8")
    given = _outcome(_peaks(30.0 * GIB, 10.0 * GIB))
    way = _way("--checkpoint full", "--loss-chunks 8", "--optimizer adamw-8bit")
    for order in ((given, parts, seen, alone, both), (given, parts, seen, both, alone)):
        assert _predictor(*order).predict(way).device_bytes == 3 * GIB


def test_what_failed_is_not_tried_with_more() -> None:
    failed = not_traced(with_changes(GIVEN, [CHANGES["--loss-chunks 8"]]), "no logits")
    bounds = Bounds(load_profile("rtx-3060"))
    bounds.learn(failed)
    assert bounds.failure(_way("--loss-chunks 8", "--checkpoint full").candidate) == "no logits"
    assert not bounds.failure(_way("--checkpoint full").candidate)


def test_what_failed_may_work_with_other_ranks_or_larger_micro_batches() -> None:
    failed = not_traced(with_changes(GIVEN, [CHANGES["--loss-chunks 8"]]), "no logits")
    bounds = Bounds(load_profile("rtx-3060"))
    bounds.learn(failed)
    way = _way("--loss-chunks 8", "--checkpoint full").candidate
    assert not bounds.failure(replace(way, spec=replace(way.spec, batch_size=2 * way.spec.batch_size)))
    elsewhere = replace(way, changes=(*way.changes, "--precision bf16"), groups=(*way.groups, "precision"))
    assert not bounds.failure(elsewhere)


@each_of(
    activations=st.integers(1, 1 << 40), states=st.integers(1, 1 << 40), batch=st.sampled_from([1, 2, 4, 8]),
    texts=st.lists(st.sampled_from(sorted(CHANGES)), min_size=1, max_size=3,
                   unique_by=lambda text: CHANGES[text].group),
)  # fmt: skip
def test_what_was_traced_is_predicted_as_it_was(activations: int, states: int, batch: int, texts: list[str]) -> None:
    ways = combine(GIVEN, [CHANGES[text] for text in texts], Search())
    way = next(
        (each for each in ways if len(each.changes) == len(texts) and each.candidate.spec.batch_size == batch), None
    )
    if way is None:
        return
    traced = _outcome(_peaks(activations, states), candidate=way.candidate)
    predictor = _predictor(_outcome(_peaks(7.0, 5.0)), traced)
    assert traced.evaluated is not None
    assert abs(predictor.predict(way).device_bytes - traced.evaluated.device_bytes) <= 1


def test_gradients_wait_where_a_step_accumulates() -> None:
    half = replace(JOB, batch_size=4, grad_accum=2)
    made = resized(_peaks(8.0, 4.0), JOB, half)
    assert made["backward"][Category.ACTIVATION] == 4.0
    assert made["backward"][Category.GRADIENT] == 2.0
    assert made["optimizer"] == _peaks(8.0, 4.0)["optimizer"]


def _layout(text: str) -> Mapping[Category, float]:
    return _guess(text).leaves


def _guess(text: str) -> Guess:
    parallel = parse_parallel(text)
    change = JobChange(text=f"--parallel {text}", group="parallel", fields=(("parallel", parallel),))
    return guess(change, Parallel(data="ddp", replicas=8))


def test_state_goes_by_the_ranks_that_share_it() -> None:
    """DeepSpeed's stages: optimizer states, then gradients, then parameters (arXiv:1910.02054, figure 1)."""
    kinds = (Category.PARAMETER, Category.GRADIENT, Category.OPTIMIZER_STATE)
    assert [_layout("zero1=8").get(kind) for kind in kinds] == [1, 1, 1 / 8]
    assert [_layout("zero2=8").get(kind) for kind in kinds] == [1, 1 / 8, 1 / 8]
    assert [_layout("zero3=8").get(kind) for kind in kinds] == [1 / 8, 1 / 8, 1 / 8]
    assert [_layout("fsdp=4,tp=2").get(kind) for kind in kinds] == [1 / 8, 1 / 8, 1 / 8]
    assert [_layout("fsdp=8,offload=yes").get(kind) for kind in kinds] == [0, 0, 0]


@pytest.mark.parametrize(
    ("text", "factor"), [("fsdp=8", 1), ("fsdp=8,reshard=no", 5), ("fsdp=8,reshard=4", 2), ("ddp=8", 1)]
)
def test_parameters_that_stay_gathered_are_there_beside_the_own_share(text: str, factor: float) -> None:
    """In 16 bits: half of all, or of those of a fourth, beside an eighth in 32."""
    assert _guess(text).passes[Category.PARAMETER] == factor


def test_every_change_has_a_guess() -> None:
    for spec in (JOB, replace(JOB, attention="math", checkpoint="full")):
        for change in single_changes(spec, 1):
            assert any(change.text.startswith(name) for name in GUESSES), change.text
    for layout in layouts(16, seq_len=1 << 15, experts=True)[1:]:
        change = JobChange(text=f"--parallel {layout}", group="parallel", fields=(("parallel", layout),))
        assert guess(change, layouts(16)[0]).slower > 0


@each_of(groups=st.sets(st.sampled_from(("precision", "optimizer", "lora", "quantize", "split"))))
def test_statistics_of_the_batch_make_a_split_a_change_of_numerics(groups: set[Group]) -> None:
    (half,) = [each.candidate for each in combine(GIVEN, (), Search()) if each.candidate.spec.batch_size == 4]
    search = Search(allow=tuple(groups))
    assert is_allowed(half, GIVEN, search, batch_statistics=False)
    assert is_allowed(half, GIVEN, search, batch_statistics=True) == ("split" in groups)
    assert wanting(half, GIVEN, search, batch_statistics=True) == (() if "split" in groups else ("split",))


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
    outcome = evaluate_here(Candidate(spec=job, changes=()), load_profile("rtx-4090"), StepLimits())
    assert outcome.evaluated is not None, outcome.reason
    assert outcome.batch_statistics is expected
    # The largest phase is what the allocator was asked for at once; 512-byte blocks and 2 MiB segments are more.
    most = max(sum(held.values()) for held in outcome.peaks.values())
    assert 0 < most <= outcome.evaluated.allocated_bytes
