"""Losses of operands of two types, whose C++ code is the same on every device: their gradients are like predictions."""

import pytest
import torch
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.utils._pytree import tree_map_only

from memplan.tracing.cuda.release import since
from memplan.tracing.cuda.semantics import cuda_semantics
from memplan.tracing.records import DeviceTraits

aten = torch.ops.aten
PREDICTION, TARGET = torch.rand(8, 4).bfloat16(), torch.rand(8, 4)
CALLS = {
    "mse_loss": lambda x, y: aten.mse_loss(x, y, 1),
    "mse_loss_backward": lambda x, y: aten.mse_loss_backward(torch.ones(()), x, y, 1),
    "smooth_l1_loss_backward": lambda x, y: aten.smooth_l1_loss_backward(torch.ones(()), x, y, 1, 1.0),
    "soft_margin_loss": lambda x, y: aten.soft_margin_loss(x, y, 1),
    "soft_margin_loss_backward": lambda x, y: aten.soft_margin_loss_backward(torch.ones(()), x, y, 1),
}


@pytest.mark.parametrize("name", [name for name in CALLS if name != "mse_loss_backward" or since("2.13")])
def test_results_have_the_type_that_the_kernel_gives_them(name: str) -> None:
    real = CALLS[name](PREDICTION, TARGET)
    with cuda_semantics(DeviceTraits(kind="cuda")), FakeTensorMode(allow_non_fake_inputs=True) as mode:
        fake = CALLS[name](*tree_map_only(torch.Tensor, mode.from_tensor, (PREDICTION, TARGET)))
    assert (fake.dtype, fake.shape) == (real.dtype, real.shape)
