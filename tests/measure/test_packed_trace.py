"""A trace comes back from the cache as it was, and an estimate made of it is the same to the byte."""

import json
import zlib
from collections.abc import Callable
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from memplan.hardware.catalog import load_profile
from memplan.job.parallel import parse_parallel
from memplan.job.reads import Reads
from memplan.job.spec import FileTarget, JobSpec
from memplan.measure import kept_traces, measurer
from memplan.measure.cache import Cache
from memplan.measure.document import ESTIMATE
from memplan.measure.local import estimate_here
from memplan.measure.measurer import trace_for
from memplan.measure.packed_trace import _SHAPE, FORM, pack, unpack
from memplan.plan.recommend.evaluate import evaluate_here
from memplan.plan.recommend.records import Candidate, StepLimits
from memplan.tracing.records import (
    CacheLayer,
    DeviceTraits,
    Event,
    ModelFacts,
    Op,
    StepRange,
    Storage,
    Trace,
    Way,
)

TARGET = """
import torch
from torch import nn

class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.rnn, self.last = nn.Conv1d(4, 16, 3), nn.LSTM(16, 8, batch_first=True), nn.Linear(8, 2)

    def forward(self, x):
        y = self.last(self.rnn(self.first(x).mT)[0])
        return torch.cat([y, y]) if {condition} else y

def model():
    return Net()

def batch(batch_size):
    return torch.randn(batch_size, 4, 32)

def loss(output, batch):
    return output.square().mean()
"""
CAUSAL = """
import torch
from torch import nn
from torch.nn.functional import scaled_dot_product_attention

class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.project = nn.Linear(64, 64)

    def forward(self, x):
        heads = self.project(x).unflatten(-1, (2, 32)).transpose(1, 2)
        return scaled_dot_product_attention(heads, heads, heads, is_causal=True).sum()

def model():
    return Net()

def batch(batch_size):
    return torch.randn(batch_size, 128, 64)
"""
JOBS: dict[str, tuple[str, str, dict[str, Any]]] = {
    "training": ("False", "h100-80g", {"precision": "bf16-mixed"}),
    "inference": ("False", "a100-40g", {"mode": "infer"}),
    "data decide": ("(y.sum() > 0)", "t4", {"grad_accum": 2}),
    "ranks": ("False", "h100-80g", {"parallel": parse_parallel("fsdp=2")}),
    "host": ("False", "cpu", {"data_workers": 2, "pin_memory": True}),
}


class Kept:
    """Stands in for the cache: what is kept is packed, what is found unpacked."""

    def __init__(self) -> None:
        self.entries: dict[object, bytes] = {}

    def find(self, spec: JobSpec, traits: DeviceTraits, rank: int, way: Way) -> Trace | None:
        content = self.entries.get((repr(spec), traits, rank, way))
        return None if content is None else unpack(content, traits)

    def keep(self, spec: JobSpec, traits: DeviceTraits, rank: int, way: Way, trace: Trace) -> None:
        content = self.entries[repr(spec), traits, rank, way] = pack(trace)
        assert unpack(content, traits) == replace(trace, graph=None, constants={})


@pytest.mark.parametrize("job", JOBS)
def test_an_estimate_of_kept_traces_is_that_of_fresh_ones(
    job: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    condition, gpu, options = JOBS[job]
    path = tmp_path / "net.py"
    path.write_text(TARGET.format(condition=condition))
    spec, profile, kept = JobSpec(target=FileTarget(path=path), batch_size=64, **options), load_profile(gpu), Kept()
    # Little memory, so that there is advice, whose traces are kept too.
    small = replace(profile, usable_bytes=profile.context_bytes + (1 << 20)) if job == "training" else profile
    [fresh] = estimate_here(spec, [small], kept=kept)  # type: ignore[arg-type]
    traces = len(kept.entries)
    assert (traces > 1) == (job in {"training", "data decide"})

    def trace(*job: Any, **how: Any) -> Trace:
        """What failed fails again: failures are not kept."""
        made = trace_for(*job, **how)
        pytest.fail(f"traced once more: {made.model}")

    monkeypatch.setattr(measurer, "trace_for", trace)
    [found] = estimate_here(spec, [small], kept=kept)  # type: ignore[arg-type]
    assert len(kept.entries) == traces
    assert _without_replay_time(ESTIMATE.plain(found)) == _without_replay_time(ESTIMATE.plain(fresh))


def test_a_candidate_of_kept_traces_is_that_of_fresh_ones(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its step takes as long, too: what is causal is known without the calls."""
    path = tmp_path / "net.py"
    path.write_text(CAUSAL)
    spec = JobSpec(target=FileTarget(path=path), batch_size=8, precision="bf16")
    candidate, profile, kept = Candidate(spec=spec, changes=()), load_profile("h100-80g"), Kept()
    fresh = evaluate_here(candidate, profile, StepLimits(), kept)  # type: ignore[arg-type]
    assert fresh.evaluated is not None
    (content,) = kept.entries.values()
    assert unpack(content, DeviceTraits.of(profile)).causal
    monkeypatch.setattr(measurer, "trace_for", lambda *_, **__: pytest.fail("traced"))
    assert evaluate_here(candidate, profile, StepLimits(), kept) == fresh  # type: ignore[arg-type]


def _without_replay_time(content: dict[str, Any]) -> str:
    del content["timings"]["replay_seconds"]
    return json.dumps(content)


TRACE = Trace(
    device=DeviceTraits(kind="cuda"),
    model=ModelFacts(parameters=5, trainable_parameters=3),
    ops=(
        Op(index=0, name="aten.mm", phase="forward", module="a", source="", flops=1 << 70, bytes_moved=9, reads=(),
           writes=(0, 1)),
        Op(index=1, name="aten.mm", phase="backward", module="a", source="x.py:3", flops=0, bytes_moved=0, reads=(1,),
           writes=()),
    ),
    storages=(
        Storage(id=0, nbytes=7, place="device", role="parameter", birth=0, name="weight", most_bytes=9, spare=True),
        Storage(id=1, nbytes=0, place="pinned", role="scratch", birth=2, name="", stream=3),
    ),
    events=(Event("alloc", 0, 0), Event("alloc", 1, 0), Event("free", 0, 1)),
    steps=(StepRange(first_op=0, end_op=2, first_event=1, end_event=3),),
    repeats=True,
    seq_len=None,
    provenance={"model": "net.py:3"},
    assumptions=("an assumption",),
    not_modelled=(),
    trace_seconds=0.25,
    graph=None,
    constants={},
    nvme_bytes=4,
    batch=(8, 16),
    optimizers=("",),
    unsure=("other", "most"),
    causal=frozenset({1}),
    cache=(CacheLayer(sequences=1, tokens=2, window=None, token_bytes=3, nbytes=6),),
)  # fmt: skip


def test_every_field_comes_back() -> None:
    assert unpack(pack(TRACE), TRACE.device) == TRACE


def test_no_field_is_forgotten() -> None:
    """A field that a trace gets one day must come back, too."""
    left_out = {Trace: {"device", "graph", "constants"}, Op: {"index"}, Storage: {"id"}}
    shapes = {Trace: _SHAPE, Op: _SHAPE["ops"], Storage: _SHAPE["storages"]}
    for record, missing in left_out.items():
        names = {field.name for field in fields(record)}
        assert names - shapes[record].keys() == missing
        assert shapes[record].keys() - names <= {"form", "texts"}


def changed(change: Callable[[dict[str, Any]], object]) -> bytes:
    content = json.loads(zlib.decompress(pack(TRACE)))
    change(content)
    return zlib.compress(json.dumps(content).encode())


@pytest.mark.parametrize("change", [
    lambda it: it.update(form=FORM + 1), lambda it: it.pop("unsure"), lambda it: it.update(more=1),
    lambda it: it["ops"]["name"].append(0), lambda it: it["ops"]["name"].__setitem__(0, 99),
    lambda it: it["ops"]["phase"].__setitem__(0, 0), lambda it: it["ops"]["reads"].__setitem__(0, [2]),
    lambda it: it["ops"]["reads"].__setitem__(0, 2), lambda it: it["ops"]["flops"].__setitem__(0, 1.5),
    lambda it: it["ops"]["flops"].__setitem__(0, True), lambda it: it["storages"]["birth"].__setitem__(0, 4),
    lambda it: it["storages"]["spare"].__setitem__(0, 1), lambda it: it["storages"]["place"].__setitem__(0, 0),
    lambda it: it["storages"]["nbytes"].__setitem__(0, None), lambda it: it["events"]["storage"].__setitem__(0, 2),
    lambda it: it["events"]["storage"].__setitem__(0, -3), lambda it: it["events"]["op"].__setitem__(0, 5),
    lambda it: it["steps"].__setitem__(0, [0, 3, 0, 3]), lambda it: it["steps"].__setitem__(0, [0, 2, 3, 1]),
    lambda it: it["steps"].__setitem__(0, [0, 2, 3]), lambda it: it["unsure"].__setitem__(0, "perhaps"),
    lambda it: it["provenance"].append(["a"]), lambda it: it.update(repeats=None),
])  # fmt: skip
def test_what_is_no_trace_is_refused(change: Callable[[dict[str, Any]], object]) -> None:
    with pytest.raises(ValueError):  # noqa: PT011 - any of its kinds: all are a miss
        unpack(changed(change), TRACE.device)


def test_a_trace_that_cannot_be_written_is_no_error(tmp_path: Path) -> None:
    nothing = Reads(files={}, environment={})
    kept, job = (
        kept_traces.KeptTraces(Cache(tmp_path), lambda: nothing),
        (JobSpec(target=FileTarget(path=tmp_path)), TRACE.device, 0),
    )
    kept.keep(*job, "likely", replace(TRACE, nvme_bytes=object()))  # type: ignore[arg-type]
    assert kept.find(*job, "likely") is None
    kept.keep(*job, "likely", TRACE)
    assert kept.find(*job, "likely") == TRACE
    assert kept.find(*job, "most") is None
    assert kept.reads() == nothing


@given(st.binary(max_size=40), st.integers(0, 400))
def test_damage_is_refused(damage: bytes, at: int) -> None:
    whole = pack(TRACE)
    content = whole[:at] + damage + whole[at + len(damage) :]
    try:
        assert unpack(content, TRACE.device) == TRACE
    except ValueError:
        assert content != whole
