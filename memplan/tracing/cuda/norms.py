"""Normalisation as CUDA runs it: fused RMS norm, cuDNN batch norm, fp32 statistics.

Source: aten/src/ATen/native/layer_norm.cpp ``rms_norm``, cuda/layer_norm_kernel.cu ``layer_norm_cuda``,
``_fused_rms_norm_cuda`` (torch 2.9 and later); Normalization.cpp ``_batch_norm_impl_index``,
``_select_batch_norm_backend``, cuda/Normalization.cu ``batch_norm_cuda``, cudnn/BatchNorm.cpp ``cudnn_batch_norm``;
group_norm.cpp ``group_norm``.

cuDNN's reserve space and workspace are known only to cuDNN; the reserve is taken as empty.
"""

import contextlib
import math
from collections.abc import Iterator

import torch

from memplan.seam.dispatcher import Kernel, fake_kernels, kernels
from memplan.tracing.scratch.layouts import memory_format

CUDNN_LARGEST_BATCH = {True: 880_801, False: 65_535}
"""Normalization.cpp ``_select_batch_norm_backend``: training, evaluation."""

CHANNELS_LAST_GROUP_NORM = "2.14"
"""First release after pytorch/pytorch #191945 (August 2026), whose CUDA group norm reads channels-last images."""

Triple = tuple[torch.Tensor, torch.Tensor, torch.Tensor]
Maybe = torch.Tensor | None


@contextlib.contextmanager
def cuda_norms() -> Iterator[None]:
    """Let normalisation take CUDA's way."""
    with kernels(COMPOSITES), kernels(LEAVES, "CPU"), fake_kernels(SHAPES):
        yield


def batch_norm_impl_index(  # noqa: PLR0917 (the schema's order)
    input: torch.Tensor,  # noqa: A002 (the schema's name)
    weight: Maybe,
    bias: Maybe,
    running_mean: Maybe,
    running_var: Maybe,
    training: bool,
    momentum: float,
    eps: float,
    cudnn_enabled: bool,
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor, int]:
    """``aten::_batch_norm_impl_index`` for a CUDA input: cuDNN's kernel where it can run, else torch's own."""
    operands = (weight, bias, running_mean, running_var)
    if cudnn_enabled and takes_cudnn(input, *operands, training=training, eps=eps):
        dense = [None if tensor is None else tensor.contiguous() for tensor in operands]
        compact = input.contiguous(memory_format=memory_format(input))
        out = torch.ops.aten.cudnn_batch_norm(compact, *dense, training, momentum, eps)
        return (*out, 1)
    reserve = torch.empty(0, dtype=torch.uint8, device=input.device)
    return (*torch.ops.aten.native_batch_norm(input, *operands, training, momentum, eps), reserve, 0)


def takes_cudnn(
    input: torch.Tensor,  # noqa: A002
    weight: Maybe,
    bias: Maybe,
    running_mean: Maybe,
    running_var: Maybe,
    *,
    training: bool,
    eps: float,
) -> bool:
    """``_select_batch_norm_backend``: would CUDA take cuDNN?

    The input is ``[N, C, ...]``, all others ``[C]``. ``training``: are batch statistics taken?
    """
    if weight is None or bias is None or torch.bfloat16 in (input.dtype, weight.dtype):
        return False
    if input.dtype == torch.float16 and weight.dtype != torch.float32:
        return False
    both = running_mean is not None and running_var is not None
    neither = running_mean is None and running_var is None and training
    return (
        (both or neither)
        and input.dim() >= 3
        and 0 < input.numel() < 2**31 - 1
        and input.size(0) <= CUDNN_LARGEST_BATCH[training]
        and eps >= 0
        and torch.backends.cudnn.enabled
    )


def group_norm(  # noqa: PLR0917 (the schema's order)
    input: torch.Tensor,  # noqa: A002 (the schema's name)
    num_groups: int,
    weight: Maybe = None,
    bias: Maybe = None,
    eps: float = 1e-5,
    cudnn_enabled: bool = True,
) -> torch.Tensor:
    """``aten::group_norm`` where CUDA's kernel reads row-major images only: others are copied first."""
    del cudnn_enabled
    batch, channels, *sides = input.shape
    sizes = (batch, channels, math.prod(sides))
    result: torch.Tensor = torch.ops.aten.native_group_norm(input.contiguous(), weight, bias, *sizes, num_groups, eps)[
        0
    ]
    return result


def _leaf(*_: object) -> None:
    """With a kernel of its own for the device the dispatcher takes an op for a leaf, as it is on CUDA."""
    raise NotImplementedError("fake tensors never run this")


def _accumulation(dtype: torch.dtype) -> torch.dtype:
    """``toAccumulateType(dtype, is_cuda=true)``."""
    return torch.float64 if dtype == torch.float64 else torch.float32


def _layer_norm(input: torch.Tensor, normalized_shape: list[int], *_: object) -> Triple:  # noqa: A002
    outer = input.dim() - len(normalized_shape)
    shape = [*input.shape[:outer], *[1] * len(normalized_shape)]
    out = torch.empty_like(input, memory_format=torch.contiguous_format)
    return out, *(_statistics(input, shape) for _ in range(2))  # type: ignore[return-value]


def _batch_norm(input: torch.Tensor, *_: object) -> Triple:  # noqa: A002
    out = torch.empty_like(input)
    return out, _statistics(input, [input.size(1)]), _statistics(input, [input.size(1)])


def _cudnn_batch_norm(  # noqa: PLR0917 (the schema's order)
    input: torch.Tensor,  # noqa: A002
    weight: torch.Tensor,
    bias: Maybe,
    running_mean: Maybe,
    running_var: Maybe,
    training: bool,
    *_: object,
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor]:
    del bias, running_mean, running_var
    size = input.size(1) if training else 0
    out = torch.empty_like(input, memory_format=memory_format(input))
    return out, weight.new_empty(size), weight.new_empty(size), input.new_empty(0, dtype=torch.uint8)


def _statistics(input: torch.Tensor, shape: list[int]) -> torch.Tensor:  # noqa: A002
    return input.new_empty(shape, dtype=_accumulation(input.dtype))


ROW_MAJOR_GROUP_NORM: dict[str, Kernel] = {"group_norm": group_norm}
COMPOSITES: dict[str, Kernel] = {
    "_batch_norm_impl_index": batch_norm_impl_index,
    **(ROW_MAJOR_GROUP_NORM if torch.torch_version.TorchVersion(torch.__version__) < CHANNELS_LAST_GROUP_NORM else {}),
}
LEAVES: dict[str, Kernel] = {"_fused_rms_norm": _leaf}
SHAPES: dict[str, Kernel] = {
    "native_layer_norm": _layer_norm,
    "native_batch_norm": _batch_norm,
    "cudnn_batch_norm": _cudnn_batch_norm,
}
