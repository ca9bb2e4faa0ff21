"""Causal attention is told from the recorded calls of a real step."""

import pytest
import torch
from torch import nn

from memplan.hardware.catalog import load_profile
from memplan.job.source import ModelSource
from memplan.job.spec import FileTarget, JobSpec
from memplan.timing.clock import step_time
from memplan.timing.rates import Rates
from memplan.tracing.records import DeviceTraits, Trace
from memplan.tracing.run import trace_job

PROFILE = load_profile("a100-80g")
FLASH = [
    "aten._scaled_dot_product_flash_attention.default",
    "aten._scaled_dot_product_flash_attention_backward.default",
]


def _trace(*, causal: bool, job: JobSpec) -> Trace:
    class Model(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.project = nn.Linear(64, 64)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            heads = self.project(x).unflatten(-1, (1, 64)).transpose(1, 2)
            return nn.functional.scaled_dot_product_attention(heads, heads, heads, is_causal=causal).sum()

    source = ModelSource(model=Model, batch=lambda size, length: (torch.zeros(size, 4096, 64, dtype=torch.bfloat16),))
    return trace_job(lambda: source, job, DeviceTraits.of(PROFILE))


@pytest.fixture
def job(tmp_path) -> JobSpec:
    return JobSpec(target=FileTarget(path=tmp_path / "model.py"), precision="bf16", batch_size=64)


@pytest.mark.parametrize("causal", [True, False])
def test_ops_are_causal_where_the_call_says_so(job: JobSpec, causal: bool) -> None:
    trace = _trace(causal=causal, job=job)
    step = trace.steps[-1]
    names = [op.name for op in trace.ops[step.first_op : step.end_op] if op.index in trace.causal]
    assert names == (FLASH if causal else [])


def test_causal_attention_takes_half_as_long(job: JobSpec) -> None:
    whole, half = (_trace(causal=causal, job=job) for causal in (False, True))
    # Two products forward and five backward (Dao 2023, section 3.1), of 64 samples of one head.
    flops = (2 + 5) * 2 * 64 * 4096**2 * 64
    saved = step_time(whole, job, PROFILE).compute - step_time(half, job, PROFILE).compute
    assert saved == pytest.approx(flops / 2 / Rates.of(PROFILE, "bf16").attention, rel=0.01)
