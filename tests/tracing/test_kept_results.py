"""Results that one trace remembers serve the next one, and change nothing in it."""

import itertools
from dataclasses import replace

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn

from memplan.tracing import results
from memplan.tracing.records import DeviceTraits, Trace
from memplan.tracing.results import Results, results_of
from tests.tracing.jobs import CPU, source, trace

AMPERE, TURING = DeviceTraits(kind="cuda", capability=(8, 0)), DeviceTraits(kind="cuda", capability=(7, 5))
DEVICES = {"cpu": CPU, "ampere": AMPERE, "turing": TURING}


class Small(nn.Module):
    """Has a kernel of each kind that devices run in ways of their own."""

    def __init__(self) -> None:
        super().__init__()
        self.embed = nn.EmbeddingBag(16, 8, mode="max")
        self.encode = nn.LSTM(8, 8, batch_first=True)
        self.norm = nn.LayerNorm(8)
        self.conv = nn.Sequential(nn.Conv1d(4, 4, 3, padding=1), nn.BatchNorm1d(4))
        self.drop = nn.Dropout()

    def forward(self, ids: torch.Tensor) -> torch.Tensor:
        rows = self.embed(ids.view(-1, 2)).view(-1, 4, 8)
        hidden, _ = self.encode(rows)
        mixed = nn.functional.scaled_dot_product_attention(hidden[:, None], hidden[:, None], rows[:, None])
        return self.drop(self.conv(self.norm(mixed[:, 0]))).softmax(-1)


SMALL = source(Small, lambda n: torch.randint(0, 16, (n, 8)), loss=lambda out, _: out.square().mean())
CHANGES = ({}, {"precision": "bf16-mixed"}, {"mode": "inference"}, {"optimizer": "sgd"}, {"attention": "math"})


def traced(device: str, change: int, *, size: int = 2) -> Trace:
    done = trace(SMALL, DEVICES[device], batch_size=size, **CHANGES[change])
    # A graph and its constants are objects of the run.
    return replace(done, trace_seconds=0.0, graph=None, constants={})


@pytest.fixture(autouse=True)
def nothing_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(results, "_kept", {})


JOBS = tuple(itertools.product(sorted(DEVICES), range(len(CHANGES))))
COLD: dict[tuple[str, int], Trace] = {}


def cold(job: tuple[str, int]) -> Trace:
    """The trace of a process that has traced nothing yet."""
    if job not in COLD:
        kept, results._kept = results._kept, {}
        try:
            COLD[job] = traced(*job)
        finally:
            results._kept = kept
    return COLD[job]


@given(st.lists(st.sampled_from(JOBS), min_size=2, max_size=4))
@settings(deadline=None, max_examples=4)
def test_a_trace_is_the_same_whatever_was_traced_before(jobs: list[tuple[str, int]]) -> None:
    results._kept.clear()
    for job in jobs:
        assert traced(*job) == cold(job)


def test_the_second_trace_asks_the_fake_mode_for_little(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[None] = []
    answer = Results._answer
    # Nothing of a call is held here: its tensors would live on.
    monkeypatch.setattr(Results, "_answer", lambda *args: asked.append(None) or answer(*args))
    first, at_first = traced("ampere", 0), len(asked)
    assert traced("ampere", 0) == first
    assert at_first > 50
    assert len(asked) == at_first


def test_each_device_has_a_memory_of_its_own() -> None:
    traced("ampere", 0)
    traced("turing", 0)
    traced("cpu", 0)
    assert len(results._kept) == 3


def test_what_is_kept_has_a_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    traced("cpu", 0)
    memory = next(iter(results._kept.values()))
    assert len(memory) > 50
    monkeypatch.setattr(results, "MOST_KEPT", len(memory) - 1)
    assert results_of("another") is not memory
    assert list(results._kept) == ["another"]
