"""Ops that a plain run on the CPU does otherwise than fake tensors under a dispatch mode say.

Sources, under aten/src/ATen/native: MaxPooling.cpp ``max_pool1d``; BatchLinearAlgebra.cpp
``_may_require_fw_or_bw_grad``; Normalization.cpp ``batch_norm_cpu`` and
``batch_norm_backward_cpu``, which lay their results out by ``suggest_memory_format`` of the source and leave out what
the mask does not ask for. The same was seen in real runs of torch 2.13.0 (November 2026).
"""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any

import torch

from memplan.seam.dispatcher import Kernel, fake_kernels, kernels
from memplan.seam.fake import FakeTensorMode
from memplan.seam.modes import get_current_dispatch_mode_stack, is_functorch_wrapped_tensor
from memplan.tracing.cpu_layouts import LAYOUTS
from memplan.tracing.scratch.layouts import memory_format

Maybe = torch.Tensor | None


@contextmanager
def cpu_ways() -> Iterator[None]:
    """Let these ops do as a plain run does, for the length of the context."""
    with kernels(_COMPOSITES), kernels(_UNDER_AUTOCAST, "AutocastCPU"), fake_kernels(_SHAPES):
        yield


def _needs_gradient(source: torch.Tensor) -> bool:
    """Does a kernel prepare for a gradient? Under a dispatch mode torch takes it for granted."""
    if is_functorch_wrapped_tensor(source) or any(map(_is_the_program_s, get_current_dispatch_mode_stack())):
        return True
    return source.requires_grad and torch.is_grad_enabled()


def _is_the_program_s(mode: object) -> bool:
    """Is a dispatch mode there in a plain run, too (selective checkpointing)?"""
    return not isinstance(mode, FakeTensorMode) and not type(mode).__module__.startswith("memplan.")


def linalg_eigvalsh(matrix: torch.Tensor, UPLO: str = "L") -> torch.Tensor:  # noqa: N803 (the schema's name)
    """``aten::linalg_eigvalsh`` (BatchLinearAlgebra.cpp): vectors are found only where a gradient needs them."""
    values: torch.Tensor = torch.ops.aten._linalg_eigh(matrix, UPLO, _needs_gradient(matrix))[0]
    return values


def linalg_svdvals(A: torch.Tensor, *, driver: str | None = None) -> torch.Tensor:  # noqa: N803 (the schema's name)
    """``aten::linalg_svdvals``, likewise."""
    values: torch.Tensor = torch.ops.aten._linalg_svd(A, False, _needs_gradient(A), driver=driver)[1]
    return values


def linalg_eigvals(matrix: torch.Tensor) -> torch.Tensor:
    """``aten::linalg_eigvals``, likewise."""
    needs = _needs_gradient(matrix)
    values: torch.Tensor = torch.ops.aten.linalg_eig(matrix)[0] if needs else torch.ops.aten._linalg_eigvals(matrix)
    return values


def max_pool1d(  # noqa: PLR0917 (the schema's order)
    input: torch.Tensor,  # noqa: A002 (the schema's name)
    kernel_size: Sequence[int],
    stride: Sequence[int] = (),
    padding: Sequence[int] = (0,),
    dilation: Sequence[int] = (1,),
    ceil_mode: bool = False,
) -> torch.Tensor:
    """``aten::max_pool1d``: indices are found only where a gradient needs them."""
    if _needs_gradient(input):
        pooled: torch.Tensor = torch.ops.aten.max_pool1d_with_indices(
            input, kernel_size, stride, padding, dilation, ceil_mode
        )[0]
        return pooled
    step = (stride or kernel_size)[0]
    free = input.shape[-1] + 2 * padding[0] - dilation[0] * (kernel_size[0] - 1) - 1
    windows = (free + (step - 1 if ceil_mode else 0)) // step + 1
    # Pool.h pooling_output_shape: the last window begins inside the source.
    if ceil_mode and (windows - 1) * step >= input.shape[-1] + padding[0]:
        windows -= 1
    return input.new_empty((*input.shape[:-1], windows))


def _batch_norm(  # noqa: PLR0917 (the schema's order)
    input: torch.Tensor,  # noqa: A002 (the schema's name)
    weight: Maybe,
    bias: Maybe,
    running_mean: Maybe,
    running_var: Maybe,
    training: bool,
    *_: object,
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    kind = _statistics_type(input, weight, bias, running_mean, running_var)
    mean, deviation = (input.new_empty(input.size(1) if training else 0, dtype=kind) for _ in range(2))
    return torch.empty_like(input, memory_format=memory_format(input)), mean, deviation


def _batch_norm_backward(  # noqa: PLR0917 (the schema's order)
    grad_out: torch.Tensor,
    input: torch.Tensor,  # noqa: A002 (the schema's name)
    weight: Maybe,
    running_mean: Maybe,
    running_var: Maybe,
    save_mean: Maybe,
    save_invstd: Maybe,
    train: bool,
    eps: float,
    output_mask: Sequence[bool],
) -> tuple[Maybe, Maybe, Maybe]:
    del grad_out, train, eps
    kind = _statistics_type(input, weight, running_mean, running_var, save_mean, save_invstd)
    gradient = torch.empty_like(input, memory_format=memory_format(input)) if output_mask[0] else None
    of_weight, of_bias = (input.new_empty(input.size(1), dtype=kind) if asked else None for asked in output_mask[1:])
    return gradient, of_weight, of_bias


def _statistics_type(source: torch.Tensor, *others: Maybe) -> torch.dtype:
    """``is_mixed_type`` (mixed_data_type.h): with others of float32, what is kept of a narrow source is float32."""
    return (
        torch.float32 if any(each is not None and each.dtype is not source.dtype for each in others) else source.dtype
    )


def pinv_under_autocast(matrix: torch.Tensor, **options: Any) -> torch.Tensor:
    """BatchLinearAlgebra's ``linalg_pinv`` ends in a product, which autocast runs in its own type."""
    kind = torch.get_autocast_dtype("cpu") if matrix.dtype in _CAST else matrix.dtype
    before = _product_type.set(kind)
    try:
        with torch.autocast("cpu", enabled=False):
            found: torch.Tensor = torch.ops.aten.linalg_pinv.atol_rtol_tensor(matrix, **options)
        # Where it has values it is that of the real kernel.
        return found.to(kind)
    finally:
        _product_type.reset(before)


def _pinv(matrix: torch.Tensor, **_: object) -> torch.Tensor:
    kind = _product_type.get() or matrix.dtype
    return matrix.new_empty((*matrix.shape[:-2], *reversed(matrix.shape[-2:])), dtype=kind)


_CAST = frozenset({torch.float32, torch.float16, torch.bfloat16})
"""aten/src/ATen/autocast_mode.h ``is_autocast_eligible``, and no double."""
_product_type: ContextVar[torch.dtype | None] = ContextVar("product_type", default=None)
"""Of the product that runs; None: that of its factors."""
_UNDER_AUTOCAST: dict[str, Kernel] = {"linalg_pinv.atol_rtol_tensor": pinv_under_autocast}
_COMPOSITES: dict[str, Kernel] = {
    "max_pool1d": max_pool1d,
    "linalg_eigvalsh": linalg_eigvalsh,
    "linalg_svdvals": linalg_svdvals,
    "linalg_eigvals": linalg_eigvals,
}
_SHAPES: dict[str, Kernel] = {
    "linalg_pinv.atol_rtol_tensor": _pinv,
    "native_batch_norm": _batch_norm,
    "native_batch_norm_backward": _batch_norm_backward,
    **LAYOUTS,
}
