"""Transformer Engine's ``Linear`` and ``LayerNormLinear``: module/linear.py and layernorm_linear.py, without numbers.

Neither keeps more than the input of its product, under sequence parallel the part of this rank, which is gathered
again; ``LayerNormLinear`` keeps what is normalized, too, with its statistics.
"""

from collections.abc import Callable
from typing import Any

import torch

from published.megatron.engine.gemm import drop, gathered, product, scattered, weight_gradient
from published.megatron.engine.norms import normalized, normalized_backward


class _Product(torch.autograd.Function):
    """``_Linear``, and ``_LayerNormLinear`` where there is a norm's weight."""

    @staticmethod
    def forward(ctx: Any, layer: Any, inputs: torch.Tensor, *parameters: Any) -> Any:
        weight, bias, norm, norm_bias = parameters
        rows: torch.Tensor = inputs
        own: tuple[torch.Tensor, ...] = ()
        if norm is not None:
            rows, *statistics = normalized(inputs.reshape(-1, inputs.shape[-1]), mean=norm_bias is not None)
            rows = rows.view(inputs.shape)
            own = (rows, *statistics)
        used = gathered(rows, layer.ranks) if layer.gathers else rows
        made = product(used.shape[:-1], weight.shape[0], inputs)
        ctx.save_for_backward(inputs, weight, norm, *own)
        ctx.layer, ctx.bias, ctx.norm_bias = layer, bias is not None, norm_bias is not None
        return scattered(made, layer.ranks) if layer.scatters else made

    @staticmethod
    def backward(ctx: Any, gradient: torch.Tensor) -> Any:
        layer = ctx.layer
        inputs, weight, norm, *own = ctx.saved_tensors
        rows = own[0] if own else inputs
        gradient = gradient.contiguous()
        gradient = gathered(gradient, layer.ranks) if layer.scatters else gradient
        used = gathered(rows, layer.ranks) if layer.gathers else rows
        whole = product(gradient.shape[:-1], weight.shape[1], gradient)
        of_input: Any = scattered(whole, layer.ranks) if layer.gathers else whole
        # The product that makes the weight's gradient sums up the bias's.
        of_weight = weight_gradient(layer.weight, fused=layer.fuse_wgrad_accumulation)
        of_bias = gradient.new_empty(weight.shape[0]) if ctx.bias else None
        del used, gradient
        of_norm = of_norm_bias = None
        if norm is not None:
            drop(own[0])
            of_rows, of_norm, of_norm_bias = normalized_backward(
                inputs.reshape(-1, inputs.shape[-1]), norm, mean=ctx.norm_bias
            )
            of_input = of_rows.view(inputs.shape)  # type: ignore[union-attr]
            drop(*own[1:])
        return None, of_input, of_weight, of_bias, of_norm, of_norm_bias


class Linear(torch.nn.Module):
    """module/linear.py ``Linear``: weights are this rank's part."""

    def __init__(
        self, in_features: int, out_features: int, *, sequence_parallel: bool, fuse_wgrad_accumulation: bool,
        tp_size: int, bias: bool, return_bias: bool, parallel_mode: str | None, init_method: Callable[..., Any],
        params_dtype: torch.dtype, device: Any, **_: Any,
    ) -> None:  # fmt: skip
        super().__init__()
        column, row = parallel_mode == "column", parallel_mode == "row"
        self.in_features, self.out_features = in_features // tp_size**row, out_features // tp_size**column
        self.use_bias, self.return_bias, self.parallel_mode, self.ranks = bias, return_bias, parallel_mode, tp_size
        self.fuse_wgrad_accumulation = fuse_wgrad_accumulation
        self.sequence_parallel = tp_size > 1 and sequence_parallel
        self.gathers, self.scatters = column and self.sequence_parallel, row and self.sequence_parallel
        kinds = {"device": device, "dtype": params_dtype}
        self._norm(**kinds)
        self.weight = torch.nn.Parameter(torch.empty(self.out_features, self.in_features, **kinds))
        init_method(self.weight)
        self.mark(self.weight, parallel=True, dim=int(row))
        self.bias = torch.nn.Parameter(torch.zeros(self.out_features, **kinds)) if bias else None
        if self.bias is not None:
            self.mark(self.bias, parallel=column, dim=0)
            self.bias.sequence_parallel = row and self.sequence_parallel  # type: ignore[attr-defined]

    def _norm(self, **_: Any) -> None:
        self.layer_norm_weight: Any = None
        self.layer_norm_bias: Any = None

    @staticmethod
    def mark(parameter: Any, *, parallel: bool, dim: int) -> None:
        """utils.py ``set_tensor_model_parallel_attributes``."""
        parameter.tensor_model_parallel, parameter.partition_dim, parameter.partition_stride = parallel, dim, 1

    def forward(self, inputs: torch.Tensor, is_first_microbatch: object = None) -> Any:
        """A bias that is handed on is not added here."""
        del is_first_microbatch
        bias = None if self.return_bias else self.bias
        made = _Product.apply(  # type: ignore[no-untyped-call]
            self, inputs, self.weight, bias, self.layer_norm_weight, self.layer_norm_bias
        )
        return (made, self.bias) if self.return_bias else made


class LayerNormLinear(Linear):
    """module/layernorm_linear.py ``LayerNormLinear``."""

    def __init__(self, *, normalization: str, **options: Any) -> None:
        self.normalization = normalization
        super().__init__(**options)

    def _norm(self, **kinds: Any) -> None:
        self.layer_norm_weight = torch.nn.Parameter(torch.ones(self.in_features, **kinds))
        biased = self.normalization == "LayerNorm"
        self.layer_norm_bias = torch.nn.Parameter(torch.zeros(self.in_features, **kinds)) if biased else None
        for parameter in self.parameters():
            parameter.sequence_parallel = self.sequence_parallel  # type: ignore[attr-defined]
