"""Scratch of recurrent layers: copies of what does not lie step by step, cuDNN's work space as a range, dropout state.

Follows aten/src/ATen/native/cudnn/RNN.cpp (``_cudnn_rnn``, ``_cudnn_rnn_backward_input``,
``_cudnn_rnn_backward_weight``, ``get_dropout_state``). What ``cudnnGetRNNTempSpaceSizes`` answers was watched on an
H100 and an H200 with cuDNN 9.19 under torch 2.11: 238 layers (benchmarks/gpu/results/cudnn), of which two thirds of the
LSTMs and half of the GRUs took within 2 % of what is likely here, and none more than 2.4 times as much. On a P100 with
cuDNN 7 they took a tenth (pytorch issue 2895): elsewhere it is likely to be none, and as much is the most.
"""

from collections.abc import Iterable, Mapping
from typing import Final

import torch

from memplan.tracing.scratch.cuda_convolution_workspace import MEASURED
from memplan.tracing.scratch.cuda_shapes import Layout, allocations, copy_if_strided, frees
from memplan.tracing.scratch.rules import Call, Rule, Scratch, Script

_LSTM, _GRU = 2, 3
_STATE_BYTES: Final = 24
"""Of each thread that the device can hold: 6,488,064 bytes on 132 multiprocessors of 2048 threads."""
_CELL_BYTES: Final = 8 << 20
"""Of each layer and direction."""
_BY_STEP: Final = {0: 3, 1: 3, _LSTM: 5, _GRU: 4}
"""Mode → values kept for each hidden one of a step."""
_BOTH, _DROPOUT = 2, 1
"""As many more where there are two directions, and where dropout lies between layers."""
_NARROW: Final = 128
"""Widths up to which cuDNN has kernels of its own."""
_OF_NARROW: Final = {0: 16, 1: 16, _LSTM: 16, _GRU: 15}
"""Mode → as many more values of theirs, for both directions together."""
_BY_STATE: Final = {0: 8, 1: 8, _LSTM: 10, _GRU: 7}
"""Mode → values for each hidden one of a state, layer and direction."""
_MARGIN: Final = 3
_GATES: Final = {0: 1, 1: 1, _LSTM: 4, _GRU: 3}
_BUFFER_ALIGNMENT: Final = 256


def forward(call: Call) -> Script | None:
    """``_cudnn_rnn(input, weight, weight_stride0, weight_buf, hx, cx, mode, …, dropout_state)``."""
    source, weights, _, _, hidden, _, mode, width, _, layers, batch_first, dropout, train, both, sizes = call.args[:15]
    state = call.device.sm_count * call.device.threads_per_sm * _STATE_BYTES
    kept = (Scratch("keep", "cuDNN's dropout state", state),) if train and dropout else ()
    work = _work_space(call, source, weights, hidden, mode, width, layers, dropout, both=both)
    return Script(
        before=(*kept, *copy_if_strided("input by steps", _by_steps(source, batch_first=batch_first, sizes=sizes))),
        # The reserve comes last of the results.
        between={(3,): work},
    )


def backward(call: Call) -> Script | None:
    """``_cudnn_rnn_backward(input, weight, weight_stride0, weight_buf, hx, cx, output, …, output_mask)``."""
    source, weights, stride, _, hidden, cell, output, gradient, of_hidden, of_cell, mode, width = call.args[:12]
    layers, batch_first, both, sizes, mask = (call.args[place] for place in (13, 14, 17, 18, 21))
    missing = (("output", output, gradient), ("hidden", hidden, of_hidden), ("cell", cell, of_cell))
    zeros = allocations(
        (f"no gradient of the {name}", value.numel() * value.element_size())
        for name, value, given in missing
        if given is None and value is not None
    )
    by_steps = copy_if_strided("input by steps", _by_steps(source, batch_first=batch_first, sizes=sizes))
    given = torch.empty_like(output, memory_format=torch.contiguous_format) if gradient is None else gradient
    turned = copy_if_strided("gradient by steps", _by_steps(given, batch_first=batch_first, sizes=sizes))
    cells = layers * (2 if both else 1)
    work = _work_space(call, source, weights, hidden, mode, width, layers, call.args[15], both=both)
    of_input = (*work, *frees("work space"), *_freed(turned), *_freed(by_steps))
    before = (*zeros, *by_steps, *turned)
    if not mask[3]:
        return Script(before=before, after=of_input)
    # Without biases the gradients are copies out of cuDNN's buffer.
    buffer = buffer_numel(weights, stride, mode, width, cells) * source.element_size()
    own = Scratch("alloc", "gradients of the weights", buffer)
    if stride in WITH_BIASES:
        return Script(before=before, between={(3, 0): (*of_input, *by_steps)}, after=work)
    return Script(before=before, between={(3, 0): (*of_input, *by_steps, own, *work)})


WITH_BIASES = (4, 5)
"""Parameters of one layer and direction that has biases, without and with a projection."""


def buffer_numel(weights: Iterable[torch.Tensor], stride: int, mode: int, width: int, cells: int) -> int:
    """Elements of cuDNN's buffer of all weights, which has room for biases even where there are none.

    Args:
        weights: All parameters.
        stride: How many of them each layer and direction has.
        mode: Which kind of layer.
        width: Hidden size.
        cells: Layers times directions.
    """
    biases = 0 if stride in WITH_BIASES else 2 * _GATES[mode] * width * cells
    return sum(weight.numel() for weight in weights) + biases


def _by_steps(tensor: torch.Tensor, *, batch_first: bool, sizes: Iterable[int]) -> Layout:
    layout = Layout.of(tensor)
    return layout.swapped(0, 1) if batch_first and not list(sizes) else layout


def _freed(lines: tuple[Scratch, ...]) -> tuple[Scratch, ...]:
    return frees(*(line.key for line in lines))


def _work_space(  # noqa: PLR0917 (an op's operands)
    call: Call,
    source: torch.Tensor,
    weights: list[torch.Tensor],
    hidden: torch.Tensor,
    mode: int,
    width: int,
    layers: int,
    dropout: float,
    *,
    both: bool,
) -> tuple[Scratch, ...]:
    """What a call is likely to take, with or without training."""
    directions = 2 if both else 1
    cells = layers * directions
    by_step = directions * (_BY_STEP[mode] + (_BOTH if both else 0) + (_DROPOUT if dropout and layers > 1 else 0))
    by_step += _OF_NARROW[mode] if width <= _NARROW else 0
    rows, inputs = source.numel() // max(source.size(-1), 1), source.numel()
    filters = sum(weight.numel() for weight in weights if weight.dim() > 1)
    values = filters + inputs + width * (rows * by_step + _BY_STATE[mode] * cells * hidden.size(1))
    size = cells * _CELL_BYTES + values * source.element_size() + _BUFFER_ALIGNMENT * (2 * cells + 1)
    measured = call.device.capability == MEASURED
    return (Scratch("alloc", "work space", size if measured else 0, _MARGIN * size),)


RECURRENT_RULES: Mapping[str, Rule] = {
    "aten._cudnn_rnn.default": forward,
    "aten._cudnn_rnn_backward.default": backward,
}
"""Op name → rule."""
