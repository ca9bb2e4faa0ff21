"""Scratch of recurrent layers: copies of what does not lie step by step, cuDNN's work space as a range, dropout state.

Follows aten/src/ATen/native/cudnn/RNN.cpp (``_cudnn_rnn``, ``_cudnn_rnn_backward_input``,
``_cudnn_rnn_backward_weight``, ``get_dropout_state``). What ``cudnnGetRNNTempSpaceSizes`` answers was watched on an
H100 with cuDNN 9.19 under torch 2.11 (benchmarks/gpu/results of 2026-11-23): an LSTM of two layers in fp32 and in half
types, a bidirectional GRU of two layers in fp32. How the answers depend on layers and directions is not known from so
few, so twice as much is the most. On a P100 with cuDNN 7 they were a tenth (pytorch issue 2895): elsewhere it is likely
to be none, and as much is the most.
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
_BY_STEP: Final = {_LSTM: {4: 18, 2: 11}, _GRU: {4: 32, 2: 16}}
"""Mode → bytes of an element → bytes for each hidden value of a step, layer and direction; a half GRU's are derived."""
_BY_STATE: Final = {_LSTM: 10, _GRU: 7}
"""Mode → elements for each hidden value of a state, layer and direction."""
_MARGIN: Final = 2
_GATES: Final = {0: 1, 1: 1, _LSTM: 4, _GRU: 3}
_BUFFER_ALIGNMENT: Final = 256


def forward(call: Call) -> Script | None:
    """``_cudnn_rnn(input, weight, weight_stride0, weight_buf, hx, cx, mode, …, dropout_state)``."""
    source, weights, _, _, hidden, _, mode, width, _, layers, batch_first, dropout, train, both, sizes = call.args[:15]
    state = call.device.sm_count * call.device.threads_per_sm * _STATE_BYTES
    kept = (Scratch("keep", "cuDNN's dropout state", state),) if train and dropout else ()
    work = _work_space(call, source, weights, hidden, mode, width, layers * (2 if both else 1), train=train)
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
    work = _work_space(call, source, weights, hidden, mode, width, cells, train=True)
    of_input = (*work, *frees("work space"), *_freed(turned), *_freed(by_steps))
    before = (*zeros, *by_steps, *turned)
    if not mask[3]:
        return Script(before=before, after=of_input)
    biases = 0 if stride in WITH_BIASES else 2 * _GATES[mode] * width * cells
    buffer = (sum(weight.numel() for weight in weights) + biases) * source.element_size()
    # Without biases the gradients are copies out of cuDNN's buffer, which has room for biases all the same.
    own = (Scratch("alloc", "gradients of the weights", buffer),) if biases else ()
    return Script(before=before, between={(3, 0): (*of_input, *by_steps, *own)}, after=work)


WITH_BIASES = (4, 5)
"""Parameters of one layer and direction that has biases, without and with a projection."""


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
    cells: int,
    *,
    train: bool,
) -> tuple[Scratch, ...]:
    """What a call is likely to take; without training the products of one layer's inputs, which no run has shown."""
    item = source.element_size()
    rows = source.numel() // max(source.size(-1), 1)
    known = mode if mode in _BY_STEP else _LSTM
    by_step = _BY_STEP[known].get(item, _BY_STEP[known][4])
    steps, states = cells * rows * width, cells * hidden.size(1) * width
    filters = sum(weight.numel() for weight in weights if weight.dim() > 1)
    size = steps * by_step + item * (filters + _BY_STATE[known] * states) + _BUFFER_ALIGNMENT * (2 * cells + 1)
    likely = size if train else min(size, rows * width * _GATES[mode] * item)
    measured = call.device.capability == MEASURED
    return (Scratch("alloc", "work space", likely if measured else 0, _MARGIN * size),)


RECURRENT_RULES: Mapping[str, Rule] = {
    "aten._cudnn_rnn.default": forward,
    "aten._cudnn_rnn_backward.default": backward,
}
"""Op name → rule."""
