"""Softmax of a half tensor into fp32: CUDA's kernel does the conversion, CPU's casts first.

Source: aten/src/ATen/native/SoftMax.cpp ``softmax``, ``log_softmax`` (torch 2.6 to 2.13): only for fp16, bf16 is cast.
"""

import torch

from memplan.seam.dispatcher import Kernel, overload


def _softmax(name: str) -> Kernel:
    kernel = overload(name)

    def softmax(self: torch.Tensor, dim: int, dtype: torch.dtype | None = None) -> torch.Tensor:
        half_to_float = self.dtype == torch.float16 and dtype == torch.float32
        converted = self if half_to_float or dtype is None else self.to(dtype)
        result: torch.Tensor = kernel(converted, dim, half_to_float)
        return result

    return softmax


KERNELS: dict[str, Kernel] = {"softmax.int": _softmax("_softmax"), "log_softmax.int": _softmax("_log_softmax")}
