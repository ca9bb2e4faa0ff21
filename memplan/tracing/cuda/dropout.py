"""Dropout as CUDA runs it: one fused kernel with a boolean mask, where CPU multiplies by noise of the input's dtype.

Source: aten/src/ATen/native/Dropout.cpp ``dropout``, ``is_fused_kernel_acceptable``, ``_dropout_impl`` (torch 2.6 to
2.13). In-place, feature and alpha dropout run the same composite on both devices and are left alone.
"""

import torch

from memplan.seam.dispatcher import Kernel


def dropout(input: torch.Tensor, p: float, train: bool) -> torch.Tensor:  # noqa: A002 (the schema's name)
    """``aten::dropout`` for a CUDA input.

    Without training it returns the input itself; else its backward is ``native_dropout_backward`` on the saved mask.

    Raises:
        RuntimeError: ``p`` is no probability, as torch raises it.
    """
    if not 0 <= p <= 1:
        raise RuntimeError(f"dropout probability has to be between 0 and 1, but got {p}")
    if p == 0 or not train or input.numel() == 0:
        return input
    if p == 1:
        return input.mul(torch.zeros((), dtype=input.dtype, device=input.device))
    result: torch.Tensor = torch.ops.aten.native_dropout(input, p, train)[0]
    return result


KERNELS: dict[str, Kernel] = {"dropout": dropout}
