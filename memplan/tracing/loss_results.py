"""Results of losses and their gradients where fake tensors say another type or layout than the kernels of any device.

torch/_decomp promotes operands of two types, and keeps how they lie; aten/src/ATen/native/Loss.cpp makes results like
the prediction.
"""

from typing import Any

import torch

from memplan.seam.dispatcher import Kernel

_NOT_REDUCED = 0
"""ATen/core/Reduction.h ``Reduction::None``."""


def row_major(position: int) -> Kernel:
    """Return a kernel whose result is like the operand at a position, row-major."""
    return lambda *args, **_: torch.empty_like(args[position], memory_format=torch.contiguous_format)


def as_it_lies(position: int) -> Kernel:
    """Return a kernel whose result lies like the operand at a position."""
    return lambda *args, **_: torch.empty_like(args[position])


def _soft_margin_loss(scores: torch.Tensor, _: Any, reduction: int = 1) -> torch.Tensor:
    return torch.empty_like(scores) if reduction == _NOT_REDUCED else scores.new_empty(())


def _soft_margin_loss_backward(_: torch.Tensor, scores: torch.Tensor, target: torch.Tensor, *__: Any) -> torch.Tensor:
    return torch.empty_like(target, dtype=scores.dtype)


LOSSES: dict[str, Kernel] = {
    **dict.fromkeys(("mse_loss_backward", "smooth_l1_loss_backward", "huber_loss_backward"), row_major(1)),
    "soft_margin_loss": _soft_margin_loss,
    "soft_margin_loss_backward": _soft_margin_loss_backward,
}
"""Op → its result."""
