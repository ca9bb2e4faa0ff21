"""Transformer Engine's norms: what they keep is their input and statistics in fp32 (csrc/extensions/normalization.cpp).

Partial sums of their backward kernels are small and left out.
"""

from typing import Any

import torch


def normalized(rows: torch.Tensor, *, mean: bool) -> tuple[torch.Tensor, ...]:
    """``layernorm_fwd`` and ``rmsnorm_fwd``: the result, and one number or two per row."""
    statistics = (rows.new_empty(rows.shape[0], dtype=torch.float32) for _ in range(2 if mean else 1))
    return torch.empty_like(rows), *statistics


def normalized_backward(rows: torch.Tensor, weight: torch.Tensor, *, mean: bool) -> tuple[torch.Tensor | None, ...]:
    """``layernorm_bwd`` and ``rmsnorm_bwd``: gradients of input, weight and bias."""
    return torch.empty_like(rows), torch.empty_like(weight), torch.empty_like(weight) if mean else None


class _Norm(torch.autograd.Function):
    """ops/basic/layer_norm.py and rmsnorm.py: ``op_forward`` and ``op_backward``."""

    @staticmethod
    def forward(ctx: Any, inputs: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor | None) -> torch.Tensor:
        rows = inputs.contiguous().view(-1, weight.numel())
        result, *statistics = normalized(rows, mean=bias is not None)
        ctx.save_for_backward(rows, weight, *statistics)
        ctx.mean = bias is not None
        return result.view(inputs.shape)

    @staticmethod
    def backward(ctx: Any, gradient: torch.Tensor) -> Any:
        rows, weight, *_ = ctx.saved_tensors
        # An operation works on a contiguous gradient.
        shape, gradient = gradient.shape, gradient.contiguous()
        of_rows, *rest = normalized_backward(rows, weight, mean=ctx.mean)
        return of_rows.view(shape), *rest  # type: ignore[union-attr]


class LayerNorm(torch.nn.Module):
    """module/layernorm.py."""

    def __init__(self, hidden_size: int, *, sequence_parallel: bool, **options: Any) -> None:
        super().__init__()
        kinds = {"device": options["device"], "dtype": options["params_dtype"]}
        self.weight = torch.nn.Parameter(torch.ones(hidden_size, **kinds))
        self.bias = torch.nn.Parameter(torch.zeros(hidden_size, **kinds)) if self.has_bias else None
        for parameter in self.parameters():
            parameter.sequence_parallel = sequence_parallel  # type: ignore[attr-defined]

    has_bias = True

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        """Shapes alone."""
        made: torch.Tensor = _Norm.apply(inputs, self.weight, self.bias)  # type: ignore[no-untyped-call]
        return made


class RMSNorm(LayerNorm):
    """module/rmsnorm.py."""

    has_bias = False
