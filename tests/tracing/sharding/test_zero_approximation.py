"""ZeRO without DeepSpeed: an approximation that says so, refuses what it has no rule for, and lies near DeepSpeed's."""

import importlib.util
from typing import Any

import pytest
from torch.distributed.fsdp import FSDPModule

from memplan.errors import UsageError
from memplan.hardware.catalog import load_profile
from memplan.job.spec import JobSpec
from memplan.job.zero import APPROXIMATE, Zero
from memplan.measure.answer import compose
from memplan.measure.interval import ZERO_APPROXIMATION
from memplan.measure.measured import Measured
from memplan.measure.measurer import measure
from memplan.plan.recommend.compose import recommend
from tests.tracing.sharding.test_zero import PADDING, PARAMETERS, RANKS, SMALL, held, held_as, job, needs_deepspeed

pytestmark = pytest.mark.filterwarnings("ignore:FSDP2-wrapped module:UserWarning")
GPU = load_profile("h100-80g")
FIND = importlib.util.find_spec
BUCKET = SMALL.reduce_bucket_size


def hidden(name: str, package: str | None = None) -> Any:
    return None if name == "deepspeed" else FIND(name, package)


STAGE_3 = pytest.mark.skipif(
    not hasattr(FSDPModule, "set_reshard_after_forward"), reason="stage 3 is made of a newer torch's FSDP2"
)


@pytest.fixture
def without_deepspeed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", hidden)


def measured(spec: JobSpec) -> Measured:
    return measure(spec, GPU)


@pytest.mark.usefixtures("without_deepspeed")
@pytest.mark.parametrize("stage", [1, 2])
def test_states_are_those_of_the_textbook(stage: int) -> None:
    """Between steps 2P + 12P/N: the gradients are gone."""
    trace = measured(job(f"zero{stage}={RANKS}")).lifetimes.trace
    assert trace.repeats
    assert held_as(trace, "optimizer_state") == pytest.approx(12 * PARAMETERS / RANKS, abs=PADDING)
    assert held_as(trace, "parameter") == pytest.approx(2 * PARAMETERS, abs=PADDING)
    assert held_as(trace, "gradient") == 0


@pytest.mark.usefixtures("without_deepspeed")
@STAGE_3
def test_states_of_stage_3() -> None:
    """Half and full weights and Adam's states, 14P/N; and the bucket, which is there from the start."""
    trace = measured(job(f"zero3={RANKS}")).lifetimes.trace
    states = held_as(trace, "optimizer_state") + held_as(trace, "parameter")
    # FSDP2 pads rows, where DeepSpeed pads elements.
    assert states == pytest.approx(14 * PARAMETERS / RANKS, rel=0.002)
    assert held(trace) >= states + 2 * BUCKET


@pytest.mark.usefixtures("without_deepspeed")
def test_offloaded_states_are_on_the_host() -> None:
    trace = measured(job("zero2=4,offload=yes")).lifetimes.trace
    assert held_as(trace, "optimizer_state") == 0
    assert held(trace, "host") >= 12 * PARAMETERS / RANKS


@pytest.mark.usefixtures("without_deepspeed")
@pytest.mark.parametrize("stage", [1, 2, pytest.param(3, marks=STAGE_3)])
def test_the_answer_says_so_and_has_an_interval_of_its_own(stage: int) -> None:
    spec = job(f"zero{stage}=4")
    answer = compose(spec, GPU, measured(spec))
    assert APPROXIMATE in answer.assumptions
    low, high = ZERO_APPROXIMATION
    assert answer.peak.low_bytes <= low * answer.peak.device_bytes
    assert answer.peak.high_bytes >= high * answer.peak.device_bytes


@pytest.mark.usefixtures("without_deepspeed")
@pytest.mark.parametrize(
    ("parallel", "zero", "what"),
    [
        ("zero3=4", Zero(offload_optimizer="nvme", offload_param="nvme"), "NVMe"),
        ("zero3=4", Zero(hpz_partition_size=2), "zero_hpz_partition_size"),
        ("zero2=4", Zero(gradient_accumulation_dtype="fp32"), "grad_accum_dtype"),
        ("zero2=4,tp=2", Zero(), "other parallelism"),
    ],
)
def test_what_no_rule_covers_is_refused(parallel: str, zero: Zero, what: str) -> None:
    with pytest.raises(UsageError, match=what):
        measured(job(parallel, zero))


@pytest.mark.usefixtures("without_deepspeed")
def test_it_is_never_recommended() -> None:
    with pytest.raises(UsageError, match="never recommended"):
        recommend(job("zero2=4"), GPU)


@needs_deepspeed
def test_with_deepspeed_nothing_is_approximated() -> None:
    assert APPROXIMATE not in measured(job("zero2=4")).lifetimes.trace.assumptions


@pytest.mark.slow
@needs_deepspeed
@pytest.mark.parametrize("zero", [SMALL, Zero()])
@pytest.mark.parametrize("parallel", ["zero1=4", "zero2=4", "zero3=4", "zero2=4,offload=yes"])
def test_deepspeeds_own_trace_lies_in_the_interval(parallel: str, zero: Zero, monkeypatch: pytest.MonkeyPatch) -> None:
    theirs = measured(job(parallel, zero)).memory
    monkeypatch.setattr(importlib.util, "find_spec", hidden)
    ours = measured(job(parallel, zero)).memory
    low, high = ZERO_APPROXIMATION
    assert low * ours.peak_allocated <= theirs.peak_allocated <= high * ours.peak_allocated
    assert low * ours.peak_reserved <= theirs.peak_reserved <= high * ours.peak_reserved
