"""Fused norms, fp32 statistics and softmax, as layer_norm_kernel.cu, Normalization.cpp and SoftMax.cpp say."""

import pytest
import torch

from memplan.seam.dispatcher import kernels
from memplan.tracing.cuda import norms, softmax
from tests.tracing.cuda.tape import played

BRAIN, HALF, SINGLE = torch.bfloat16, torch.float16, torch.float32
F = torch.nn.functional


@pytest.mark.parametrize("dtype", [BRAIN, HALF, SINGLE])
def test_rms_norm_saves_its_input_and_one_number_per_row(dtype):
    with played() as tape:
        if not hasattr(torch.ops.aten, "_fused_rms_norm"):
            pytest.skip("this torch has no fused RMS norm")
        x = torch.randn(4, 6, 8, dtype=dtype, device="cuda", requires_grad=True)
        weight = torch.ones(8, dtype=dtype, device="cuda", requires_grad=True)
        tape.clear()
        F.rms_norm(x, (8,), weight).sum().backward()
        assert tape.row("_fused_rms_norm.default").results == (((4, 6, 8), dtype), ((4, 6, 1), SINGLE))
        assert tape.row("_fused_rms_norm_backward.default").results == (((4, 6, 8), dtype), ((8,), dtype))
        assert "pow.Tensor_Scalar" not in tape.ops


@pytest.mark.parametrize("dtype", [BRAIN, HALF, SINGLE])
def test_layer_norm_keeps_its_statistics_in_fp32(dtype):
    with played() as tape:
        x = torch.randn(4, 6, 8, dtype=dtype, device="cuda", requires_grad=True)
        tape.clear()
        F.layer_norm(x, (8,)).sum().backward()
        assert tape.row("native_layer_norm.default").results == (
            ((4, 6, 8), dtype),
            ((4, 6, 1), SINGLE),
            ((4, 6, 1), SINGLE),
        )
        assert tape.row("native_layer_norm_backward.default").results == (((4, 6, 8), dtype),)


def test_group_norm_copies_channels_last_images_before_torch_has_a_kernel_for_them(monkeypatch):
    # As if on a release before that kernel, whichever torch runs the test.
    monkeypatch.setattr(norms, "COMPOSITES", {**norms.COMPOSITES, **norms.ROW_MAJOR_GROUP_NORM})
    with played() as tape:
        layer = torch.nn.GroupNorm(2, 6, device="cuda")
        plain = torch.randn(4, 6, 8, 8, device="cuda", requires_grad=True)
        image = torch.randn(4, 6, 8, 8, device="cuda").to(memory_format=torch.channels_last).requires_grad_()
        tape.clear()
        assert layer(plain).is_contiguous()
        assert "clone" not in tape.ops
        out = layer(image)
        assert out.is_contiguous()
        assert tape.ops.count("clone") == 1
        out.sum().backward()
        assert image.grad.shape == image.shape
        assert "native_group_norm_backward" in tape.ops


def test_batch_norm_takes_cudnn_for_fp32_and_forward_and_backward_fit():
    with played() as tape:
        layer = torch.nn.BatchNorm2d(6, device="cuda")
        x = torch.randn(4, 6, 8, 8, device="cuda", requires_grad=True)
        tape.clear()
        layer(x).sum().backward()
        out, mean, variance, reserve = tape.row("cudnn_batch_norm.default").results
        assert (out, mean, variance) == (((4, 6, 8, 8), SINGLE), ((6,), SINGLE), ((6,), SINGLE))
        assert reserve[1] == torch.uint8
        assert "cudnn_batch_norm_backward" in tape.ops
        tape.clear()
        layer.eval()(x)
        assert tape.row("cudnn_batch_norm.default").results[1] == ((0,), SINGLE)


def test_batch_norm_in_bf16_takes_torchs_own_kernel_with_fp32_statistics():
    with played() as tape:
        layer = torch.nn.BatchNorm2d(6, device="cuda").to(BRAIN)
        x = torch.randn(4, 6, 8, 8, device="cuda", dtype=BRAIN, requires_grad=True)
        tape.clear()
        layer(x).sum().backward()
        assert tape.row("native_batch_norm.default").results[1:] == (((6,), SINGLE), ((6,), SINGLE))


# Normalization.cpp _select_batch_norm_backend, line by line: (change, takes cuDNN)
BACKENDS = [
    ({}, True),
    ({"dtype": BRAIN}, False),
    ({"dtype": HALF}, True),
    ({"dtype": HALF, "weight": HALF}, False),
    ({"affine": False}, False),
    ({"tracked": False}, True),
    ({"tracked": False, "training": False}, False),
    ({"shape": (4, 6)}, False),
    ({"shape": (70_000, 6, 1)}, True),
    ({"shape": (70_000, 6, 1), "training": False}, False),
]


@pytest.mark.parametrize(("change", "expected"), BACKENDS)
def test_the_backend_is_the_one_that_normalization_cpp_selects(change, expected):
    x = torch.empty(change.get("shape", (4, 6, 8)), dtype=change.get("dtype", SINGLE), device="meta")
    weight = torch.empty(6, dtype=change.get("weight", SINGLE), device="meta")
    affine = weight if change.get("affine", True) else None
    running = weight if change.get("tracked", True) else None
    training = change.get("training", True)
    assert norms.takes_cudnn(x, affine, affine, running, running, training=training, eps=1e-5) is expected


def test_fp16_softmax_into_fp32_needs_no_copy_but_bf16_does():
    for function, kernel in ((F.softmax, "_softmax"), (F.log_softmax, "_log_softmax")):
        for dtype, ops in ((HALF, [kernel]), (BRAIN, ["_to_copy", kernel])):
            with played() as tape:
                x = torch.randn(4, 8, dtype=dtype, device="cuda")
                tape.clear()
                assert function(x, -1, dtype=SINGLE).dtype == SINGLE
                assert tape.ops == ops


def test_fp16_softmax_returns_its_gradient_in_fp16():
    with played() as tape:
        x = torch.randn(4, 8, dtype=HALF, device="cuda", requires_grad=True)
        F.softmax(x, -1, dtype=SINGLE).sum().backward()
        assert x.grad is not None
        assert x.grad.dtype == HALF
        assert tape.ops.count("_to_copy") == 0


@pytest.mark.parametrize("dtype", [None, SINGLE, torch.float64])
def test_real_softmax_values_agree_with_torch(dtype):
    x = torch.linspace(-1, 1, 12).view(3, 4)
    expected = [function(x, -1, dtype=dtype) for function in (F.softmax, F.log_softmax)]
    with kernels(softmax.KERNELS):
        found = [function(x, -1, dtype=dtype) for function in (F.softmax, F.log_softmax)]
    assert all(torch.equal(a, b) for a, b in zip(expected, found, strict=True))


def test_real_batch_norm_values_agree_with_torch_on_its_own_kernel():
    x, ones = torch.linspace(-1, 1, 24).view(2, 3, 4), torch.ones(3)
    expected = F.batch_norm(x, torch.zeros(3), ones.clone(), training=True)
    with kernels(norms.COMPOSITES):
        # Without weight and bias cuDNN does not take it, so the kernel of this machine runs.
        assert torch.equal(F.batch_norm(x, torch.zeros(3), ones.clone(), training=True), expected)
