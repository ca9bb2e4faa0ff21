"""CUDA's choice of attention kernel, case by case from sdp_utils.cpp; every row names the filter that decides it."""

from dataclasses import replace

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from memplan.tracing.cuda.attention_call import AttentionCall, Operand
from memplan.tracing.cuda.attention_choice import (
    CUDNN_FIRST_ORDER,
    DEFAULT_ORDER,
    choose_kernel,
    default_cudnn_version,
    default_order,
    objection,
)
from memplan.tracing.cuda.release import since

SM75, SM80, SM86, SM89, SM90, SM100, SM120 = (7, 5), (8, 0), (8, 6), (8, 9), (9, 0), (10, 0), (12, 0)
HALF, BRAIN, SINGLE, DOUBLE = torch.float16, torch.bfloat16, torch.float32, torch.float64


def operand(shape, dtype=BRAIN, *, grad=False, stride=None, offset=0):
    if stride is None:
        stride, step = [], 1
        for size in reversed(shape):
            stride.insert(0, step)
            step *= size
    return Operand(tuple(shape), tuple(stride), dtype, grad, offset)


def call(size=64, dtype=BRAIN, *, queries=128, keys=128, heads=8, key_heads=8, grad=True, value_size=None, **rest):
    return AttentionCall(
        query=operand((2, heads, queries, size), dtype, grad=grad),
        key=operand((2, key_heads, keys, size), dtype, grad=grad),
        value=operand((2, key_heads, keys, value_size or size), dtype, grad=grad),
        **rest,
    )


def mask(*shape, dtype=BRAIN, grad=False):
    return operand(shape, dtype, grad=grad)


CASES = [
    # name, call, kernel under the default order
    ("plain half on sm80", call(), "flash"),
    ("flash begins at sm80 (check_flash_attention_hardware_support)", call(dtype=HALF, capability=SM75), "efficient"),
    ("bf16 needs sm80 (check_dtypes_low_precision, less_than_sm80 dtypes)", call(capability=SM75), "math"),
    ("fp32 is not low precision", call(dtype=SINGLE), "efficient"),
    ("fp64 has no fused kernel", call(dtype=DOUBLE), "math"),
    ("mask (check_for_attn_mask)", call(mask=mask(128, 128)), "efficient"),
    ("causal, not square (check_flash_causal_non_square_seqlens)", call(queries=64, is_causal=True), "efficient"),
    ("not causal, not square", call(queries=64), "flash"),
    ("head size 256 (check_head_dim_size_flash: <= 256)", call(256), "flash"),
    ("head size 264 on sm80: efficient aligns to 8", call(264), "efficient"),
    ("head size 20, flash pads", call(20), "flash"),
    ("head size 20 under a mask: minimum_gemm_alignment is 8 for half", call(20, mask=mask(1, 128)), "math"),
    ("fp32 head size 20: minimum_gemm_alignment is 4 on sm80", call(20, SINGLE), "efficient"),
    ("fp32 head size 18", call(18, SINGLE), "math"),
    ("fp32 head size 18 on sm75: alignment 1", call(18, SINGLE, capability=SM75), "efficient"),
    ("fp16 head size 20 on sm75: tensor cores want 8", call(20, HALF, capability=SM75), "math"),
    ("value of another size (same_head_dim_size)", call(64, value_size=32), "efficient"),
    ("head size 224 trained on sm86", call(224, capability=SM86), "efficient"),
    ("head size 224 inferred on sm86", call(224, capability=SM86, grad=False), "flash"),
    ("head size 224 on sm86 without grad mode", call(224, capability=SM86, grad_enabled=False), "flash"),
    ("head size 192 trained on sm89", call(192, capability=SM89), "flash"),
    ("head size 256 trained on sm89 without dropout", call(256, capability=SM89), "flash"),
    ("head size 256 trained on sm89 with dropout", call(256, capability=SM89, dropout=0.1), "efficient"),
    ("head size 224 trained on sm120", call(224, capability=SM120), "efficient"),
    ("head size 224 trained on sm80 and sm90 is fine", call(224, capability=SM90), "flash"),
    ("fewer key heads without enable_gqa", call(key_heads=2), "math"),
    ("grouped queries", call(key_heads=2, enable_gqa=True), "flash"),
    ("grouped queries that do not divide", call(key_heads=3, enable_gqa=True), "math"),
    ("grouped queries under a mask: efficient has none", call(key_heads=2, enable_gqa=True, mask=mask(1, 128)), "math"),
    ("empty keys (check_nonzero_sequence_lengths_dense)", call(keys=0), "math"),
    ("beyond sm121", call(capability=(13, 0)), "math"),
    (
        "head size 1 ignores its stride only for flash",
        replace(call(1), key=operand((2, 8, 128, 1), stride=(1024, 128, 1, 9))),
        "flash",
    ),
]


@pytest.mark.parametrize(("case", "expected"), [row[1:] for row in CASES], ids=[row[0] for row in CASES])
def test_the_default_order_takes_the_kernel_that_sdp_utils_takes(case, expected):
    assert choose_kernel(case).kernel == expected


CUDNN_CASES = [
    ("plain half on sm90", call(capability=SM90), None),
    ("fp32", call(dtype=SINGLE, capability=SM90), "dtype"),
    ("broadcast mask", call(capability=SM90, mask=mask(2, 1, 128, 128)), None),
    ("mask of three dimensions (check_attn_mask_shape)", call(capability=SM90, mask=mask(8, 128, 128)), "attn_mask"),
    ("mask with a gradient", call(capability=SM90, mask=mask(128, 128, grad=True)), "gradient"),
    ("head size over 128", call(256, capability=SM90), "128"),
    ("head sizes 192 and 128 on sm90, cuDNN 9.11", call(192, value_size=128, capability=SM90), None),
    ("head sizes 192 and 128 on sm80", call(192, value_size=128, capability=SM80), "128"),
    ("head size 20", call(20, capability=SM90), "multiples of 8"),
    ("one key", call(keys=1, capability=SM90), "length 1"),
    ("one query", call(queries=1, capability=SM90), None),
    ("one query with dropout", call(queries=1, capability=SM90, dropout=0.25), "length 1"),
    ("dropout 0.1 (check_cudnn_dropout)", call(capability=SM90, dropout=0.1), "1/16" if since("2.12") else None),
    ("dropout on 9.12", call(capability=SM90, dropout=0.25, cudnn_version=91200), "dropout"),
    ("deterministic", call(capability=SM90, deterministic=True), "deterministic"),
    ("grouped queries, keys and values apart", call(key_heads=2, enable_gqa=True, capability=SM90), None),
    ("sm75", call(dtype=HALF, capability=SM75), "sm80"),
]


@pytest.mark.parametrize(("case", "word"), [row[1:] for row in CUDNN_CASES], ids=[row[0] for row in CUDNN_CASES])
def test_cudnn_refuses_what_can_use_cudnn_attention_refuses(case, word):
    reason = objection("cudnn", case)
    assert (reason is None) == (word is None)
    assert word is None or word in reason


@pytest.mark.parametrize(
    ("capability", "torch_version", "first"),
    [
        (SM90, "2.13.0+cpu", "cudnn"),
        (SM100, "2.11.0+cu130", "cudnn"),
        (SM90, "2.10.0", "flash"),  # its wheels bring cuDNN 9.10, under the 9.15.1 that priority_order asks for
        (SM90, "2.6.0", "flash"),
        (SM80, "2.13.0", "flash"),
        (SM120, "2.13.0", "flash"),
    ],
)
def test_hopper_and_blackwell_prefer_cudnn_once_it_is_new_enough(capability, torch_version, first):
    assert default_order(capability, default_cudnn_version(torch_version))[0] == first


def test_a_disabled_kernel_is_passed_over_and_the_reason_kept():
    choice = choose_kernel(call(), enabled=frozenset({"efficient", "math"}))
    assert choice.kernel == "efficient"
    assert choice.reasons == {"flash": "it is disabled"}


def test_without_math_an_impossible_call_has_no_kernel():
    choice = choose_kernel(call(dtype=DOUBLE), enabled=frozenset({"flash", "efficient", "cudnn"}))
    assert choice.kernel is None
    assert set(choice.reasons) == set(DEFAULT_ORDER)


calls = st.builds(
    call,
    st.integers(1, 300),
    st.sampled_from([HALF, BRAIN, SINGLE, DOUBLE]),
    queries=st.integers(0, 5),
    keys=st.integers(0, 5),
    heads=st.integers(1, 8),
    key_heads=st.integers(1, 8),
    grad=st.booleans(),
    enable_gqa=st.booleans(),
    is_causal=st.booleans(),
    dropout=st.sampled_from([0.0, 0.1, 0.25]),
    capability=st.sampled_from([SM75, SM80, SM86, SM89, SM90, SM100, SM120]),
)


@given(calls, st.sampled_from([DEFAULT_ORDER, CUDNN_FIRST_ORDER]))
def test_the_choice_is_the_first_kernel_without_an_objection(case, order):
    choice = choose_kernel(case, order=order)
    possible = [kernel for kernel in order if objection(kernel, case) is None]
    assert choice.kernel == possible[0]
    assert list(choice.reasons) == list(order[: order.index(choice.kernel)])


@given(calls)
def test_what_runs_in_training_runs_in_inference(case):
    for kernel in DEFAULT_ORDER:
        if objection(kernel, case) is None:
            assert objection(kernel, replace(case, grad_enabled=False)) is None


def test_cudnn_rounded_dropout_before_torch_2_12(monkeypatch):
    monkeypatch.setenv("MEMPLAN_TORCH_RELEASE", "2.11.0+cu130")
    assert objection("cudnn", call(capability=SM90, dropout=0.1)) is None
