"""The context by the libraries that a step uses, against what 47 workloads took on an H100."""

import json
from dataclasses import replace
from pathlib import Path

import pytest

from memplan.hardware.catalog import load_profile
from memplan.measure.context import context_of
from memplan.tracing.records import Op, Phase, Trace
from memplan.tracing.scratch.cuda_gemm import GEMM_RULES
from memplan.units import MIB, OpIndex

RESULTS = Path(__file__).parents[2] / "benchmarks/gpu/results/2026-11-23-NVIDIA_H100_80GB_HBM3-torch2.11.0_cu130.json"
MATRICES, IMAGES = "aten.mm.default", "aten.convolution.default"
ATTENTION = "aten._scaled_dot_product_cudnn_attention.default"


def op(name: str, phase: Phase) -> Op:
    return Op(
        index=OpIndex(0), name=name, phase=phase, module="", source="", flops=0, bytes_moved=0, reads=(), writes=()
    )


def trace_of(forward: list[str], backward: list[str]) -> Trace:
    ops = [op(name, "forward") for name in forward] + [op(name, "backward") for name in backward]
    trace = object.__new__(Trace)
    object.__setattr__(trace, "ops", tuple(ops))
    return trace


@pytest.mark.parametrize(("workload", "forward", "backward"), [
    ("llama-flash", [MATRICES], [MATRICES]),
    ("llama-fused", [MATRICES, ATTENTION], [MATRICES, "aten._scaled_dot_product_cudnn_attention_backward.default"]),
    ("llama-inference", [MATRICES, ATTENTION], []),
    ("resnet50-inference", [IMAGES, "aten.addmm.default"], []),
    ("autoencoder", [IMAGES], ["aten.convolution_backward.default"]),
    ("lstm", [MATRICES, "aten._cudnn_rnn.default"], [MATRICES, "aten._cudnn_rnn_backward.default"]),
])  # fmt: skip
def test_handles_explain_what_an_h100_took_beside_the_allocator(workload, forward, backward):
    measured = json.loads(RESULTS.read_text(encoding="utf-8"))["workloads"][workload]["measured"]
    real = measured["device_bytes"] - measured["reserved_bytes"]
    assert context_of(load_profile("h100-80g"), trace_of(forward, backward)).context_bytes == real


def test_asking_twice_takes_nothing_twice():
    once = context_of(load_profile("h100-80g"), trace_of([], []))
    assert context_of(once, trace_of([], [])) == once
    assert once.context_low_bytes <= once.context_bytes < load_profile("h100-80g").context_bytes - 100 * MIB


def test_where_no_handle_was_measured_the_context_is_the_profiles():
    profile = load_profile("a100-80g")
    assert context_of(profile, trace_of([], [])) is profile
    shifted = replace(load_profile("h100-80g"), context_bytes=900 * MIB)
    assert context_of(shifted, trace_of([MATRICES], [MATRICES])).context_bytes == 884 * MIB


def test_every_product_with_a_workspace_asks_for_a_handle():
    profile = load_profile("h100-80g")
    without = context_of(profile, trace_of([], [])).context_bytes
    for name in GEMM_RULES:
        assert context_of(profile, trace_of([name], [])).context_bytes == without + profile.cublas_handle_bytes
