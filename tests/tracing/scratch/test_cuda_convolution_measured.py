"""What cuDNN took on an H100, against the likely size and the most; the calls lie with the benchmark's results."""

from pathlib import Path

import pytest

from memplan.tracing.scratch.cuda_convolution_workspace import likely_bytes, most_bytes
from tests.support.benchmarks import benchmark

measured = benchmark("convolutions", Path(__file__).parents[3] / "benchmarks" / "gpu")
CALLS = list(measured.kept())
DRAWN = frozenset({"resnet50", "resnet50-mixed"})
"""Workloads whose calls the rules were drawn from."""


def test_the_most_holds_every_call():
    assert len(CALLS) > 400
    assert [each for each in CALLS if most_bytes(each[1], measured.device()) < each[2]] == []


@pytest.mark.parametrize(
    ("drawn", "layout", "least"), [(True, False, 0.9), (False, False, 0.65), (False, True, 0.75)]
)  # fmt: skip
def test_most_calls_take_the_likely_size(drawn, layout, least):
    rows = [(convolution, taken) for name, convolution, taken in CALLS if (name in DRAWN) == drawn]
    chosen = [(each, taken) for each, taken in rows if each.channels_last == layout]
    same = sum(measured.is_same(likely_bytes(each, measured.device()), taken) for each, taken in chosen)
    assert same >= least * len(chosen)


def test_all_calls_together_take_about_the_likely_size():
    likely = sum(likely_bytes(convolution, measured.device()) for _, convolution, _ in CALLS)
    assert likely == pytest.approx(sum(taken for *_, taken in CALLS), rel=0.05)
