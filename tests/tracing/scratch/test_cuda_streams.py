"""Whole programs: the predicted allocation stream against the one a real GPU made, event for event."""

import importlib
from pathlib import Path

import pytest

from tests.tracing.scratch.real_scratch import DATA, events, steps

BENCHMARKS = Path(__file__).parents[3] / "benchmarks"


@pytest.mark.parametrize(
    "snapshot",
    [
        pytest.param("wedsonlin_medium_128_inference_memory_snapshot", marks=pytest.mark.slow),
        "kkaitlyn_memory_ctx128_fullstep",
        "kkaitlyn_memory_ctx128_forward_mixed",
        pytest.param("wedsonlin_medium_256_training_memory_snapshot", marks=pytest.mark.slow),
    ],
)
def test_stream_equals_the_real_one(snapshot, monkeypatch):
    real = steps(events(snapshot))
    monkeypatch.syspath_prepend(BENCHMARKS)
    programs = importlib.import_module("cuda_streams.programs")
    predicted = programs.predict(programs.PROGRAMS[f"{snapshot}.pickle"])
    assert list(predicted.steps) == real
    published = importlib.import_module("cuda_streams.snapshot").stream_of(DATA / "snapshots" / f"{snapshot}.pickle")
    assert predicted.peak() == published.peak()
