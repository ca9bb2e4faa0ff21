"""Transformer Engine's ``GroupedLinear``: module/grouped_linear.py without numbers; one weight for each expert here."""

from collections.abc import Callable
from typing import Any

import torch

from published.megatron.engine.gemm import drop, workspace
from published.megatron.engine.linear import Linear

STREAMS = 4
"""common/util/multi_stream.cpp ``get_num_compute_streams``: products run on so many, each with a work space."""


class _Products(torch.autograd.Function):
    """``_GroupedLinear``, whose inputs are parts of one tensor and are what it keeps."""

    @staticmethod
    def forward(ctx: Any, layer: Any, inputs: torch.Tensor, splits: list[int], *weights: torch.Tensor) -> torch.Tensor:
        parts = torch.split(inputs.reshape(-1, inputs.shape[-1]), splits)
        for stream in range(STREAMS):
            workspace(stream)
        ctx.save_for_backward(*parts, *weights)
        ctx.layer, ctx.shape = layer, inputs.shape
        return inputs.new_empty((sum(splits), weights[0].shape[0]))

    @staticmethod
    def backward(ctx: Any, gradient: torch.Tensor) -> Any:
        layer, number = ctx.layer, ctx.layer.num_gemms
        parts, weights = ctx.saved_tensors[:number], ctx.saved_tensors[number:]
        gradient = gradient.contiguous()
        of_input = gradient.new_empty(ctx.shape)
        if layer.fuse_wgrad_accumulation:
            raise NotImplementedError("no recipe adds to main_grad in a grouped product")
        of_weights = gradient.new_empty((number, *weights[0].shape))
        drop(*parts)
        return None, of_input, None, *of_weights.unbind()


class GroupedLinear(torch.nn.Module):
    """module/grouped_linear.py ``GroupedLinear`` without biases."""

    def __init__(
        self, num_gemms: int, in_features: int, out_features: int, *, fuse_wgrad_accumulation: bool, bias: bool,
        init_method: Callable[..., Any], params_dtype: torch.dtype, device: Any = "cuda", **_: Any,
    ) -> None:  # fmt: skip
        super().__init__()
        if bias:
            raise NotImplementedError("no recipe's experts have biases")
        self.num_gemms, self.fuse_wgrad_accumulation = num_gemms, fuse_wgrad_accumulation
        for index in range(num_gemms):
            weight = torch.nn.Parameter(torch.empty(out_features, in_features, dtype=params_dtype, device=device))
            init_method(weight)
            Linear.mark(weight, parallel=True, dim=0)
            self.register_parameter(f"weight{index}", weight)

    def forward(self, inputs: torch.Tensor, splits: list[int], is_first_microbatch: object = None) -> torch.Tensor:
        """Rows of the first expert come first."""
        del is_first_microbatch
        made: torch.Tensor = _Products.apply(self, inputs, splits, *self.parameters())  # type: ignore[no-untyped-call]
        return made
