"""Results of CUDA's recurrent kernels: shapes, reserve and gradients.

Source: aten/src/ATen/native/cudnn/RNN.cpp ``_cudnn_rnn``, ``_cudnn_rnn_backward``; cuda/RNN.cu
``_thnn_fused_gru_cell`` (torch 2.6 to 2.13). The reserve is what ``cudnnGetRNNTempSpaceSizes`` answered on an H200 with
cuDNN 9.19 for 210 of 211 layers (benchmarks/gpu/results/cudnn) and, but for its last bytes, on a P100 with cuDNN 7
(pytorch issue 2895: four layers of a GRU to an LSTM as 27 to 23). Projections were half as wide as their layers.
"""

from collections.abc import Sequence

import torch

from memplan.seam.dispatcher import Kernel
from memplan.tracing.scratch.cuda_recurrent import WITH_BIASES, buffer_numel
from memplan.tracing.scratch.cuda_shapes import ceil_div, round_up

RESERVED = {0: 1, 1: 1, 2: 5, 3: 6}
"""Hidden-sized values that are kept by step, layer and direction, without what passes from layer to layer."""
RESERVED_END = 256
"""Bytes beyond them."""
RESERVED_ALIGNMENT = 32
"""Of each of its parts."""
MASK_BITS = 8
"""Dropout keeps a bit of each value, so many to a byte."""
GRU_WORKSPACE = 5
"""cuda/RNN.cu ``GRU_WORKSPACE_MULTIPLIER``."""

Tensors = Sequence[torch.Tensor]
Maybe = torch.Tensor | None


def _cudnn_rnn_shape(  # noqa: PLR0917 (the schema's order)
    input: torch.Tensor,  # noqa: A002 (the schema's name)
    weight: Tensors,
    weight_stride0: int,
    weight_buf: Maybe,
    hx: torch.Tensor,
    cx: Maybe,
    mode: int,
    hidden_size: int,
    proj_size: int,
    num_layers: int,
    batch_first: bool,
    dropout: float,
    train: bool,
    bidirectional: bool,
    batch_sizes: Sequence[int],
    dropout_state: Maybe,
) -> Tensors:
    """``_cudnn_rnn``: output, hidden states, reserve."""
    del dropout_state
    directions = 2 if bidirectional else 1
    width = (proj_size or hidden_size) * directions
    if batch_first and not batch_sizes:
        # cuDNN writes [T, B, H]; the result is its transpose.
        output = input.new_empty(input.size(1), input.size(0), width).transpose(0, 1)
    else:
        output = input.new_empty(*input.shape[:-1], width)
    hy = torch.empty_like(hx, memory_format=torch.contiguous_format)
    cy = hx.new_empty(0) if cx is None else torch.empty_like(cx, memory_format=torch.contiguous_format)
    steps = input.numel() // input.size(-1)
    # A projected layer keeps what it projects, too.
    kept = hidden_size * RESERVED[mode] + (hidden_size + proj_size if proj_size else 0)
    values = num_layers * directions * kept, (num_layers - 1) * directions * hidden_size
    padded = len(batch_sizes) * batch_sizes[0] if batch_sizes else steps
    mask = ceil_div(padded * width, MASK_BITS) if dropout else 0
    parts = *(steps * each * input.element_size() for each in values), *[mask] * (num_layers - 1) * directions
    reserved = sum(round_up(part, RESERVED_ALIGNMENT) for part in parts) + RESERVED_END
    if weight_buf is None:
        # Weights that do not lie in one buffer (bfloat16's never do) are copied into one.
        cells = num_layers * directions
        weight_buf = input.new_empty(buffer_numel(weight, weight_stride0, mode, hidden_size, cells))
    return output, hy, cy, input.new_empty(reserved if train else 0, dtype=torch.uint8), weight_buf


def _cudnn_rnn_backward_shape(  # noqa: PLR0917 (the schema's order)
    input: torch.Tensor,  # noqa: A002 (the schema's name)
    weight: Tensors,
    weight_stride0: int,
    weight_buf: torch.Tensor,
    hx: torch.Tensor,
    cx: Maybe,
    *rest: object,
) -> tuple[torch.Tensor, torch.Tensor, Maybe, list[torch.Tensor]]:
    """``_cudnn_rnn_backward``: the weights' gradients are views of one buffer, but copies where it has biases alone."""
    del weight_buf
    batch_first, batch_sizes, wanted = rest[8], rest[12], rest[-1]
    assert isinstance(wanted, list | tuple)  # noqa: S101 (output_mask, the schema's last argument)
    if batch_first and not batch_sizes:
        dx = torch.empty_like(input.transpose(0, 1), memory_format=torch.contiguous_format).transpose(0, 1)
    else:
        dx = torch.empty_like(input, memory_format=torch.contiguous_format)
    dhx = torch.empty_like(hx, memory_format=torch.contiguous_format)
    dcx = None if cx is None else torch.empty_like(cx, memory_format=torch.contiguous_format)
    if not wanted[3]:
        return dx, dhx, dcx, []
    if weight_stride0 not in WITH_BIASES:
        return dx, dhx, dcx, [torch.empty_like(each, memory_format=torch.contiguous_format) for each in weight]
    buffer = weight[0].new_zeros(sum(each.numel() for each in weight))
    parts = torch.split_with_sizes(buffer, [each.numel() for each in weight])
    return dx, dhx, dcx, [part.view(each.shape) for part, each in zip(parts, weight, strict=True)]


def _gru_cell_shape(input_gates: torch.Tensor, hidden_gates: torch.Tensor, hx: torch.Tensor, *_: object) -> Tensors:
    """``_thnn_fused_gru_cell``: result and workspace."""
    del input_gates, hidden_gates
    hy = torch.empty_like(hx, memory_format=torch.contiguous_format)
    return hy, hx.new_empty(hx.size(0), hx.size(1) * GRU_WORKSPACE)


def _gru_cell_backward_shape(
    grad_hy: torch.Tensor, workspace: torch.Tensor, has_bias: bool
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor, Maybe, Maybe]:
    """``_thnn_fused_gru_cell_backward``: gates, hidden state, biases."""
    rows, width = workspace.size(0), workspace.size(1) // GRU_WORKSPACE * 3
    gates = workspace.new_empty(rows, width), workspace.new_empty(rows, width)
    biases = (gates[0].sum(0), gates[1].sum(0)) if has_bias else (None, None)
    return *gates, torch.empty_like(grad_hy, memory_format=torch.contiguous_format), *biases


SHAPES: dict[str, Kernel] = {
    "_cudnn_rnn": _cudnn_rnn_shape,
    "_cudnn_rnn_backward": _cudnn_rnn_backward_shape,
    "_thnn_fused_gru_cell": _gru_cell_shape,
    "_thnn_fused_gru_cell_backward": _gru_cell_backward_shape,
}
