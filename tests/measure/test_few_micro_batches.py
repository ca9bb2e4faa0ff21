"""A few micro-batches in the place of many: the same memory, time and work, or all of them are traced."""

from collections.abc import Callable
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

from memplan.hardware.catalog import load_profile
from memplan.job.parallel import parse_parallel
from memplan.job.source import ModelSource
from memplan.job.spec import FileTarget, JobSpec
from memplan.measure.answer import compose
from memplan.measure.measured import Measured
from memplan.measure.measurer import measuring
from memplan.replay.host import host_peak
from memplan.timing.clock import step_time
from memplan.tracing.turns import MICRO_BATCHES, few_micro_batches
from tests.tracing.jobs import source
from tests.tracing.sharding.toy import Decoder, loss, needs_recent_torch, words

PROFILE = load_profile("rtx-3060")
MANY = 11


class Padded(nn.Module):
    """Large blocks that come and go: where they find room settles after some micro-batches alone."""

    def __init__(self) -> None:
        super().__init__()
        self.up, self.down = nn.Linear(512, 2048), nn.Linear(2048, 512)

    def forward(self, x):
        return self.down(torch.relu(self.up(nn.functional.pad(x, (0, 0, 0, 0, 0, -len(x) % 8)))))


class Keeping(Padded):
    """Keeps something of each forward."""

    def __init__(self) -> None:
        super().__init__()
        self.kept: list[torch.Tensor] = []

    def forward(self, x):
        self.kept.append(x.clone())
        return super().forward(x)


class Alternating(Padded):
    """Takes turns between two ways to compute."""

    def __init__(self) -> None:
        super().__init__()
        self.count = 0

    def forward(self, x):
        self.count += 1
        return super().forward(torch.cat([x, x]) if self.count % 2 else x)


def _padded(kind: type[nn.Module] = Padded) -> ModelSource:
    return source(kind, lambda size: torch.randn(size, 256, 512), loss=lambda output, _: output.mean())


def _decoder() -> ModelSource:
    return source(Decoder, words, loss=loss)


def _both(given: ModelSource, **options: Any) -> tuple[tuple[JobSpec, Measured], ...]:
    whole = replace(JobSpec(target=FileTarget(path=Path("model.py")), grad_accum=MANY), **options)
    jobs = few_micro_batches(whole), whole
    with measuring(load=lambda: given) as measurer:
        return tuple((job, measurer.ranks(job, PROFILE)[-1]) for job in jobs)


def _said(job: JobSpec, measured: Measured) -> dict[str, Any]:
    """All that is said of a job but for how it was found, and its times."""
    estimate, trace = compose(job, PROFILE, measured), measured.lifetimes.trace
    return {
        "peak": asdict(estimate.peak),
        "verdict": estimate.verdict,
        # How much of it is an activation goes by the micro-batch of the peak: the last one's output outlives it.
        "whole": sum(estimate.breakdown.values()),
        "flops": estimate.flops_per_step,
        "jitter": measured.jitter,
        "host": host_peak(trace),
    }


def _agree(few: tuple[JobSpec, Measured], whole: tuple[JobSpec, Measured]) -> bool:
    one, other = (asdict(step_time(measured.lifetimes.trace, job, PROFILE)) for job, measured in (few, whole))
    return _said(*few) == _said(*whole) and one == pytest.approx(other, rel=1e-6)


@pytest.mark.parametrize(
    ("make", "options"),
    [
        (_padded, {}),
        (_padded, {"offload_activations": True}),
        (_decoder, {"precision": "fp16-mixed", "clip_grad_norm": 1.0}),
        (_decoder, {"checkpoint": "full", "keep_gradients": True}),
    ],
)
def test_a_few_micro_batches_say_what_all_say(make: Callable[[], ModelSource], options: dict[str, Any]) -> None:
    few, whole = _both(make(), **options)
    assert {turn.further for turn in few[1].lifetimes.trace.turns} == {MANY - MICRO_BATCHES}
    assert not whole[1].lifetimes.trace.turns
    assert _agree(few, whole)


@needs_recent_torch
@pytest.mark.filterwarnings("ignore:FSDP2-wrapped module:UserWarning")  # The decoder returns a view, on purpose.
@pytest.mark.parametrize(
    "words",
    ["fsdp=4", *(pytest.param(each, marks=pytest.mark.slow) for each in ("ddp=2", "hsdp=2x2", "fsdp=2,tp=2", "pp=2"))],
)
def test_ranks_keep_their_last_micro_batch(words: str) -> None:
    few, whole = _both(_decoder(), parallel=parse_parallel(words), precision="bf16")
    assert {turn.further for turn in few[1].lifetimes.trace.turns} == {MANY - MICRO_BATCHES - 1}
    assert _agree(few, whole)


@pytest.mark.parametrize("kind", [Keeping, Alternating])
def test_micro_batches_that_differ_are_all_traced(kind: type[nn.Module]) -> None:
    few, whole = _both(_padded(kind))
    assert not few[1].lifetimes.trace.turns
    assert _agree(few, whole)


def test_a_ring_keeps_its_turns_where_more_of_them_are_left_out() -> None:
    job = JobSpec(target=FileTarget(path=Path("model.py")), grad_accum=12)
    assert few_micro_batches(job).few_micro_batches
    assert few_micro_batches(replace(job, parallel=parse_parallel("cp=8"))).few_micro_batches
    assert not few_micro_batches(replace(job, parallel=parse_parallel("cp=512"))).few_micro_batches
    assert not few_micro_batches(replace(job, grad_accum=MICRO_BATCHES)).few_micro_batches
