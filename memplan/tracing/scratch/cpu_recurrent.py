"""Scratch of LSTM layers on CPU: oneDNN's packed weights and scratchpad, and the workspace kept for the backward.

Follows src/cpu/rnn/rnn_utils.hpp (``init_conf``, ``set_workspace_sizes``) and rnn_utils.cpp (``get_good_ld``,
``set_offsets``) of oneDNN, and aten/src/ATen/native/mkldnn/RNN.cpp, which runs one direction of one layer per call.
Measured on torch 2.13.0 (oneDNN 3.12, AVX-512), November 2026.
"""

from dataclasses import dataclass

import torch

from memplan.tracing.scratch.cpu_shapes import PAGE_BYTES, copy_bytes, enlarge, round_up
from memplan.tracing.scratch.rules import Call, Scratch, Script

_WORKSPACE = 3
"""Position of the result."""
_GATES = 4
_FLOAT = 4
_LINE_BYTES = 64
_WIDEST_MERGED_BATCH = 128
"""Forward products of all time steps are merged below it (``merge_gemm_layer``)."""
_INFERENCE_EXTRA = 208
"""More of the same without gradients (measured on AVX2)."""
_SCRATCHPAD_EXTRA = 4664
"""Page alignment and tables of pointers (measured, the same for all shapes)."""


def _leading(size: int) -> int:
    """``get_good_ld``: whole cache lines, but not a multiple of 256 elements (4K aliasing)."""
    line = _LINE_BYTES // _FLOAT
    padded = round_up(size, line)
    return padded + line if padded % 256 == 0 else padded


@dataclass(frozen=True, slots=True, kw_only=True)
class Layer:
    """One direction of one LSTM layer in float32."""

    steps: int
    batch: int
    inputs: int
    hidden: int

    @classmethod
    def of(cls, call: Call) -> "Layer":
        """The layer of a call, forward or backward: input ``[T, N, I]``, recurrent weight ``[4H, H]``."""
        steps, batch, inputs = call.args[0].shape
        return cls(steps=steps, batch=batch, inputs=inputs, hidden=call.args[2].shape[1])

    @property
    def workspace_bytes(self) -> int:
        """Everything that the backward reads, page by page (``set_offsets``); diff states are reserved there too."""
        cells = 2 * (self.steps + 1) * self.batch
        states = cells * _leading(max(self.inputs, self.hidden)) * _FLOAT
        cell_states = cells * self.hidden * _FLOAT
        gates = self.steps * self.batch * _leading(_GATES * self.hidden) * _FLOAT
        outputs = self.steps * self.batch * _leading(self.hidden) * _FLOAT
        parts = (gates, outputs, states, cell_states, states, states, cell_states)
        end = 0
        for part in parts:
            end = round_up(end, PAGE_BYTES) + part
        # The space for the GRU variant's grid comes last and is empty.
        return round_up(end, PAGE_BYTES)

    def scratchpad_bytes(self, *, forward: bool) -> int:
        """Gates before their activation, for all steps where products are merged, and two rows of states."""
        merged = self.steps if not forward or self.batch < _WIDEST_MERGED_BATCH else 1
        gates = merged * self.batch * _leading(_GATES * self.hidden) * _FLOAT
        row = round_up(self.batch * _leading(self.hidden) * _FLOAT, PAGE_BYTES)
        return round_up(gates, PAGE_BYTES) + 2 * row + _SCRATCHPAD_EXTRA

    def inference_bytes(self) -> int:
        """The same without gradients: all gates, unpadded, and states that else the workspace holds (measured)."""
        gates = self.steps * self.batch * _GATES * self.hidden * _FLOAT
        row = self.batch * _leading(self.hidden) * _FLOAT
        cells = self.batch * self.hidden * _FLOAT
        parts = (gates, row, row, 4 * cells, 2 * cells, PAGE_BYTES)
        return sum(round_up(part, PAGE_BYTES) for part in parts) + _SCRATCHPAD_EXTRA + _INFERENCE_EXTRA

    @property
    def bias_bytes(self) -> int:
        """One bias vector, the sum of both of PyTorch's."""
        return _GATES * self.hidden * _FLOAT

    def rows_by_input(self, inputs: int) -> int:
        """Weights as ``[inputs, 4H]`` with a good leading dimension (``ldigo``)."""
        return inputs * _leading(_GATES * self.hidden) * _FLOAT

    def rows_by_gate(self, inputs: int) -> int:
        """Weights as ``[4H, inputs]`` (``ldgoi``), PyTorch's own layout, copied only to stretch its rows."""
        return 0 if _leading(inputs) == inputs else _GATES * self.hidden * _leading(inputs) * _FLOAT


def forward(call: Call) -> Script:
    """``aten.mkldnn_rnn_layer``."""
    layer = Layer.of(call)
    if not torch.is_grad_enabled():
        return _inference(call, layer)
    enlarge(call.out[_WORKSPACE], layer.workspace_bytes)
    return Script(
        after=_allocations(
            (
                ("bias", layer.bias_bytes),
                ("input", copy_bytes(call.args[0])),
                ("weight", layer.rows_by_input(layer.inputs)),
                ("recurrent weight", layer.rows_by_input(layer.hidden)),
                ("scratchpad", layer.scratchpad_bytes(forward=True)),
            )
        )
    )


def _inference(call: Call, layer: Layer) -> Script:
    """Without gradients, in whatever mode the module is: no workspace, weights in blocks without padding."""
    likely = layer.inference_bytes()
    is_measured = layer.inputs <= layer.hidden and layer.batch < _WIDEST_MERGED_BATCH
    parts = (
        ("bias", layer.bias_bytes),
        ("input", copy_bytes(call.args[0])),
        ("weight", layer.inputs * _GATES * layer.hidden * _FLOAT),
        ("recurrent weight", layer.hidden * _GATES * layer.hidden * _FLOAT),
    )
    scratchpad = Scratch("alloc", "scratchpad", likely, most=None if is_measured else 2 * likely)
    return Script(after=(*_allocations(parts), scratchpad))


def backward(call: Call) -> Script:
    """``aten.mkldnn_rnn_layer_backward``."""
    layer = Layer.of(call)
    state = layer.batch * layer.hidden * _FLOAT
    before = (
        ("output gradient", copy_bytes(call.args[10])),
        ("hidden gradient", state if call.args[11] is None else 0),
        ("cell gradient", state if call.args[12] is None else 0),
    )
    return Script(
        before=_allocations(before),
        after=_allocations(
            (
                ("bias", layer.bias_bytes),
                ("weight", layer.rows_by_gate(layer.inputs)),
                ("recurrent weight", layer.rows_by_gate(layer.hidden)),
                ("weight gradient", layer.rows_by_input(layer.inputs)),
                ("recurrent weight gradient", layer.rows_by_input(layer.hidden)),
                ("bias gradient", layer.bias_bytes),
                ("scratchpad", layer.scratchpad_bytes(forward=False)),
            )
        ),
    )


def _allocations(parts: tuple[tuple[str, int], ...]) -> tuple[Scratch, ...]:
    return tuple(Scratch("alloc", key, size) for key, size in parts if size)


RULES = {"aten.mkldnn_rnn_layer.default": forward, "aten.mkldnn_rnn_layer_backward.default": backward}
"""Op name → rule."""
