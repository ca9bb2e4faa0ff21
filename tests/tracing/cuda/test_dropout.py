"""Dropout.cpp: the fused kernel for 0 < p < 1 and elements, else the input or a product with zero."""

import pytest
import torch
from torch.nn.functional import dropout

from memplan.seam.dispatcher import kernels
from memplan.tracing.cuda.dropout import KERNELS
from memplan.tracing.recorder import Recorder
from memplan.tracing.records import DeviceTraits
from memplan.tracing.scratch.cuda_table import CUDA_RULES
from memplan.tracing.values import Values
from memplan.tracing.world import fake_world
from tests.tracing.cuda.tape import played


def test_training_keeps_a_boolean_mask_and_nothing_else():
    with played() as tape:
        x = torch.randn(4, 5, device="cuda", requires_grad=True)
        tape.clear()
        dropout(x, 0.1).sum().backward()
        assert tape.row("native_dropout.default").results == (((4, 5), torch.float32), ((4, 5), torch.bool))
        assert [op for op in tape.ops if "dropout" in op] == ["native_dropout", "native_dropout_backward"]
        assert "bernoulli_.float" not in tape.ops


def test_the_mask_is_allocated_before_the_result():
    # Dropout.cu dropout_cuda: a byte per element, then the result.
    with fake_world():
        recorder = Recorder(DeviceTraits(kind="cuda"), CUDA_RULES, None, Values())
        x = torch.ones(4, 5)
        recorder.recording = True
        with recorder.watching():
            kept = torch.ops.aten.native_dropout(x, 0.1, True)
    assert [tuple(each.shape) for each in kept] == [(4, 5), (4, 5)]
    made = [entry.nbytes for entry in recorder.ledger.entries if entry.role == "intermediate"]
    assert made == [20, 80]


@pytest.mark.parametrize("mode", [torch.no_grad, torch.inference_mode, torch.enable_grad])
def test_evaluation_and_zero_probability_allocate_nothing(mode):
    with played() as tape, mode():
        x = torch.randn(4, 5, device="cuda")
        tape.clear()
        dropout(x, 0.5, training=False)
        dropout(x, 0.0)
        dropout(torch.nn.Dropout(0.5).eval()(x), 0.0)
        assert tape.ops == []


def test_certain_dropout_multiplies_by_a_zero():
    with played() as tape:
        x = torch.randn(4, 5, device="cuda", dtype=torch.bfloat16)
        tape.clear()
        dropout(x, 1.0)
        assert tape.ops == ["zeros", "mul.Tensor"]
        assert tape.row("zeros.default").results == (((), torch.bfloat16),)
        assert tape.row("zeros.default").places == ("device",)


def test_an_empty_input_is_returned():
    with played() as tape:
        x = torch.randn(0, 5, device="cuda")
        tape.clear()
        dropout(x, 0.5)
        assert tape.ops == []


def test_in_place_dropout_is_the_same_on_both_devices():
    with played() as tape:
        x = torch.randn(4, 5, device="cuda")
        tape.clear()
        dropout(x, 0.5, inplace=True)
        assert tape.ops == ["empty_like", "bernoulli_.float", "div_.Scalar", "mul_.Tensor"]


@pytest.mark.parametrize(("p", "training"), [(0.0, True), (1.0, True), (0.3, False)])
def test_real_values_agree_with_torch(p, training):
    x = torch.arange(6.0).view(2, 3)
    expected = dropout(x, p, training)
    with kernels(KERNELS):
        assert torch.equal(dropout(x, p, training), expected)


def test_no_probability_is_refused_as_torch_does():
    with kernels(KERNELS), pytest.raises(RuntimeError, match="between 0 and 1"):
        torch.dropout(torch.ones(2), 1.5, train=True)
