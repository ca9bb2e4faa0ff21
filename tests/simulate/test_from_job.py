"""Steps of any length from a few traces, against traces of those lengths."""

from functools import partial

import pytest

from memplan.errors import EstimateError, UsageError
from memplan.hardware.catalog import load_profile
from memplan.job.load import load_source
from memplan.job.spec import FileTarget, JobSpec
from memplan.simulate import from_job
from memplan.simulate.coverage import TOLERATED
from memplan.simulate.from_job import LengthPlan, streams_of, trace_workload
from memplan.simulate.lengths import Fixed, Listed, Uniform
from memplan.tracing.records import DeviceTraits
from memplan.tracing.run import trace_job

GPU = load_profile("a100-40g")
CUDA = DeviceTraits.of(GPU)
ATTENTION = """
import torch
from torch import nn
from torch.nn import functional

class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.tokens = nn.Embedding(100, 64)
        self.qkv, self.head = nn.Linear(64, 192), nn.Linear(64, 100)

    def forward(self, tokens):
        q, k, v = self.qkv(self.tokens(tokens)).unflatten(-1, (3, 4, 16)).permute(2, 0, 3, 1, 4)
        {attention}
        return self.head(mixed.transpose(1, 2).flatten(2))

def model():
    return Net()

def batch(batch_size, seq_len=64):
    return torch.randint(100, (batch_size, seq_len))

def loss(output, batch):
    return functional.cross_entropy(output.flatten(0, 1), batch.flatten())
"""
FUSED = "mixed = functional.scaled_dot_product_attention(q, k, v, is_causal=True)"
BY_HAND = "mixed = (q @ k.mT / 4).softmax(-1) @ v"


def spec_of(tmp_path, attention, **options):
    (tmp_path / "net.py").write_text(ATTENTION.replace("{attention}", attention))
    return JobSpec(target=FileTarget(path=tmp_path / "net.py"), **options)


def trace_at(spec, length):
    given = JobSpec(target=spec.target, batch_size=spec.batch_size, precision=spec.precision, seq_len=length)
    return streams_of(trace_job(partial(load_source, given), given, CUDA))


def bytes_of(requests):
    return [request.nbytes for request in requests if request.action == "alloc"]


@pytest.mark.parametrize(("attention", "degree"), [(FUSED, 1), (BY_HAND, 2)])
def test_sizes_at_untraced_lengths_equal_real_traces(tmp_path, attention, degree):
    """Scores by hand are quadratic in the length; the fused kernel pads to 32."""
    spec = spec_of(tmp_path, attention, batch_size=2)
    plan = LengthPlan(distribution=Uniform(low=180, high=420), steps=40, seed=0)
    work = trace_workload(spec, GPU, plan)
    assert len(work.traced_lengths) < len(set(work.lengths)) / 2
    assert any("agrees byte for byte" in remark for remark in work.assumptions)
    unseen = [n for n in sorted(set(work.lengths)) if n not in work.traced_lengths and work.families.of(n)[1] == n]
    length = unseen[len(unseen) // 2]
    family, fitting = work.families.of(length)
    assert max(len(getattr(size, "coefficients", ())) for size in family.sizes) == degree + 1
    sizes, truth = family.sizes_at(fitting), trace_at(spec, length)
    for mine, real in zip(family.stretches, truth.stretches, strict=True):
        assert [(c.key, c.is_free) for c in mine] == [(r.key, r.action == "free") for r in real]
        assert [sizes[c.size] for c in mine if not c.is_free] == bytes_of(real)


def test_few_lengths_are_all_traced(tmp_path):
    plan = LengthPlan(distribution=Listed(lengths=(64, 17, 100)), steps=7, seed=0)
    work = trace_workload(spec_of(tmp_path, FUSED), GPU, plan)
    assert work.lengths == (64, 17, 100, 64, 17, 100, 64)
    assert work.traced_lengths == (17, 64, 100)
    assert {work.families.of(length)[1] for length in work.lengths} == {17, 64, 100}


def test_fixed_takes_the_jobs_own_length(tmp_path):
    plan = LengthPlan(distribution=Fixed(length=None), steps=3, seed=0)
    assert trace_workload(spec_of(tmp_path, FUSED), GPU, plan).lengths == (64, 64, 64)


@pytest.mark.slow
def test_where_ops_change_with_the_length_steps_are_rounded_up_and_it_is_said(tmp_path, monkeypatch):
    """An extra op beyond 300 tokens: two families, and what lies between their traces is played at the longer."""
    monkeypatch.setattr(from_job, "MOST_TRACES", 5)
    spec = spec_of(tmp_path, f"q = q.sin() if q.shape[-2] > 300 else q\n        {FUSED}")
    work = trace_workload(spec, GPU, LengthPlan(distribution=Uniform(low=180, high=420), steps=40, seed=0))
    first, *_, last = work.families.members
    assert first.longest <= 300 < last.shortest
    between = [n for n in work.lengths if first.longest < n < last.shortest and n not in work.traced_lengths]
    assert all(work.families.of(n)[1] > n for n in between)
    if between:
        assert any("next longer length" in remark for remark in work.assumptions)


@pytest.mark.slow
def test_a_gap_between_families_is_narrowed(tmp_path):
    spec = spec_of(tmp_path, f"q = q.sin() if q.shape[-2] > 300 else q\n        {FUSED}")
    plan = LengthPlan(distribution=Uniform(low=180, high=420), steps=40, seed=0)
    work = trace_workload(spec, GPU, plan)
    rounded = [n for n in work.lengths if work.families.of(n)[1] != n]
    assert len(rounded) <= TOLERATED * len(work.lengths) + 1


@pytest.mark.parametrize("body", ["batch(batch_size)", "batch(batch_size, seq_len=9)"])
def test_lengths_without_effect_are_refused(tmp_path, body):
    (tmp_path / "net.py").write_text(
        "import torch\nmodel = lambda: torch.nn.Linear(8, 8)\n"
        f"def {body}:\n    return torch.randn(batch_size, 8)\ndef loss(output, batch):\n    return output.sum()\n"
    )
    spec = JobSpec(target=FileTarget(path=tmp_path / "net.py"))
    with pytest.raises(UsageError, match=r"sequence length|seq_len"):
        trace_workload(spec, GPU, LengthPlan(distribution=Uniform(low=4, high=30), steps=9, seed=0))


def test_steps_that_grow_are_refused(tmp_path):
    spec = spec_of(tmp_path, f"self.kept = [*getattr(self, 'kept', []), q]\n        {FUSED}")
    with pytest.raises(EstimateError, match="do not repeat"):
        trace_workload(spec, GPU, LengthPlan(distribution=Fixed(length=None), steps=9, seed=0))
