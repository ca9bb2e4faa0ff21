"""Recurrent layers as CUDA runs them: cuDNN for whole sequences, fused kernels for single cells.

Source: aten/src/ATen/native/RNN.cpp ``lstm``, ``gru``, ``rnn_*``, ``LSTMCell``, ``GRUCell``; cudnn/RNN.cpp
``_cudnn_impl``; aten/src/ATen/cudnn/AutocastRNN.cpp ``_cudnn_rnn_cast_reflatten`` (torch 2.6 to 2.13).

Weights count as flattened, as ``module.cuda()`` leaves them: the weight buffer is the weights' own memory.
"""

import contextlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from memplan.seam.dispatcher import Kernel, fake_kernels, kernels
from memplan.seam.replace import Replacement, replaced
from memplan.tracing.cuda.rnn_shapes import SHAPES

MODES = {"rnn_relu": 0, "rnn_tanh": 1, "lstm": 2, "gru": 3}
"""cudnn.h ``cudnnRNNMode_t``."""

Tensors = Sequence[torch.Tensor]
Maybe = torch.Tensor | None


@contextlib.contextmanager
def cuda_rnn() -> Iterator[None]:
    """Let recurrent layers take CUDA's way."""
    with kernels(_composites()), fake_kernels(SHAPES), replaced(_LAYERS):
        yield


def _stay_flat(_: torch.nn.RNNBase) -> None:
    """``RNNBase.flatten_parameters``, which would ask cuDNN for the buffer."""


_LAYERS = (Replacement("torch.nn.RNNBase.flatten_parameters", _stay_flat),)


@dataclass(frozen=True, slots=True, kw_only=True)
class Layers:
    """The options of a recurrent layer stack."""

    mode: int
    has_biases: bool
    num_layers: int
    dropout: float
    train: bool
    bidirectional: bool
    batch_first: bool = False
    packed_steps: int = 0
    """Steps of a packed batch; 0 for a padded one."""


class _LowWeights(torch.autograd.Function):
    """``copy_weights_to_flat_buf_views``: a buffer of low weights in every call, and gradients cast one by one."""

    @staticmethod
    def forward(ctx: Any, low: torch.dtype, *weights: torch.Tensor) -> Tensors:
        ctx.dtypes = [weight.dtype for weight in weights]
        sizes = [weight.numel() for weight in weights]
        parts = torch.split_with_sizes(weights[0].new_zeros(sum(sizes), dtype=low), sizes)
        views = tuple(part.view_as(weight) for part, weight in zip(parts, weights, strict=True))
        for view, weight in zip(views, weights, strict=True):
            view.copy_(weight)
        return views

    @staticmethod
    def backward(ctx: Any, *gradients: torch.Tensor) -> tuple[torch.Tensor | None, ...]:
        pairs = reversed(list(zip(gradients, ctx.dtypes, strict=True)))
        cast = [gradient.to(dtype) for gradient, dtype in pairs]
        return None, *reversed(cast)


def _run(data: torch.Tensor, states: tuple[torch.Tensor, Maybe], params: Tensors, layers: Layers) -> Tensors:
    """``_cudnn_impl``: one call of the library for all steps and layers."""
    hx, cx = states
    # Modules make views of one buffer of their weights where ``torch.backends.cudnn`` knows their type. What stands for
    # it has no memory of its own.
    flat = params[0].dtype is not torch.bfloat16 or torch.is_autocast_enabled("cuda")
    if torch.is_autocast_enabled("cuda"):
        # AutocastRNN.cpp ``_cudnn_rnn_cast_reflatten``; the compiler evaluates its casts from the last to the first.
        low = torch.get_autocast_dtype("cuda")
        params = _LowWeights.apply(low, *params)  # type: ignore[no-untyped-call]
        cx = None if cx is None else cx.to(low)
        hx, data = hx.to(low), data.to(low)
    projected = hx.size(2) if cx is not None and cx.size(2) != hx.size(2) else 0
    hidden = cx.size(2) if cx is not None else hx.size(2)
    out: Tensors = torch.ops.aten._cudnn_rnn(
        data,
        params,
        (4 if layers.has_biases else 2) + (1 if projected else 0),
        params[0].detach() if flat else None,
        hx,
        cx,
        layers.mode,
        hidden,
        projected,
        layers.num_layers,
        layers.batch_first,
        layers.dropout,
        layers.train,
        layers.bidirectional,
        # Of a packed batch only the first size and the number of steps decide shapes.
        [hx.size(1)] * layers.packed_steps,
        None,
    )
    return out[:3]


def _lstm(  # noqa: PLR0917 (the schema's order)
    input: torch.Tensor,  # noqa: A002 (the schema's name)
    hx: Tensors,
    params: Tensors,
    has_biases: bool,
    num_layers: int,
    dropout: float,
    train: bool,
    bidirectional: bool,
    batch_first: bool,
) -> Tensors:
    """``aten::lstm.input``."""
    layers = Layers(
        mode=MODES["lstm"],
        has_biases=has_biases,
        num_layers=num_layers,
        dropout=dropout,
        train=train,
        bidirectional=bidirectional,
        batch_first=batch_first,
    )
    return tuple(_run(input, (hx[0], hx[1]), params, layers))


def _lstm_packed(  # noqa: PLR0917 (the schema's order)
    data: torch.Tensor,
    batch_sizes: torch.Tensor,
    hx: Tensors,
    params: Tensors,
    has_biases: bool,
    num_layers: int,
    dropout: float,
    train: bool,
    bidirectional: bool,
) -> Tensors:
    """``aten::lstm.data``."""
    layers = Layers(
        mode=MODES["lstm"],
        has_biases=has_biases,
        num_layers=num_layers,
        dropout=dropout,
        train=train,
        bidirectional=bidirectional,
        packed_steps=batch_sizes.size(0),
    )
    return tuple(_run(data, (hx[0], hx[1]), params, layers))


def _one_state(name: str) -> Kernel:
    """``aten::gru.input``, ``rnn_tanh.input``, ``rnn_relu.input``."""

    def layer(  # noqa: PLR0917 (the schema's order)
        input: torch.Tensor,  # noqa: A002 (the schema's name)
        hx: torch.Tensor,
        params: Tensors,
        has_biases: bool,
        num_layers: int,
        dropout: float,
        train: bool,
        bidirectional: bool,
        batch_first: bool,
    ) -> Tensors:
        layers = Layers(
            mode=MODES[name],
            has_biases=has_biases,
            num_layers=num_layers,
            dropout=dropout,
            train=train,
            bidirectional=bidirectional,
            batch_first=batch_first,
        )
        return tuple(_run(input, (hx, None), params, layers)[:2])

    return layer


def _one_state_packed(name: str) -> Kernel:
    """``aten::gru.data``, ``rnn_tanh.data``, ``rnn_relu.data``."""

    def layer(  # noqa: PLR0917 (the schema's order)
        data: torch.Tensor,
        batch_sizes: torch.Tensor,
        hx: torch.Tensor,
        params: Tensors,
        has_biases: bool,
        num_layers: int,
        dropout: float,
        train: bool,
        bidirectional: bool,
    ) -> Tensors:
        layers = Layers(
            mode=MODES[name],
            has_biases=has_biases,
            num_layers=num_layers,
            dropout=dropout,
            train=train,
            bidirectional=bidirectional,
            packed_steps=batch_sizes.size(0),
        )
        return tuple(_run(data, (hx, None), params, layers)[:2])

    return layer


def _lstm_cell(  # noqa: PLR0917 (the schema's order)
    input: torch.Tensor,  # noqa: A002 (the schema's name)
    hx: Tensors,
    w_ih: torch.Tensor,
    w_hh: torch.Tensor,
    b_ih: Maybe = None,
    b_hh: Maybe = None,
) -> Tensors:
    """``aten::lstm_cell``."""
    gates = torch.matmul(input, w_ih.t()), torch.matmul(hx[0], w_hh.t())
    hy, cy, _ = torch.ops.aten._thnn_fused_lstm_cell(*gates, hx[1], b_ih, b_hh)
    return hy, cy


def _gru_cell(  # noqa: PLR0917 (the schema's order)
    input: torch.Tensor,  # noqa: A002 (the schema's name)
    hx: torch.Tensor,
    w_ih: torch.Tensor,
    w_hh: torch.Tensor,
    b_ih: Maybe = None,
    b_hh: Maybe = None,
) -> torch.Tensor:
    """``aten::gru_cell``."""
    gates = torch.matmul(input, w_ih.t()), torch.matmul(hx, w_hh.t())
    hy: torch.Tensor = torch.ops.aten._thnn_fused_gru_cell(*gates, hx, b_ih, b_hh)[0]
    return hy


def _composites() -> dict[str, Kernel]:
    table: dict[str, Kernel] = {
        "lstm.input": _lstm,
        "lstm.data": _lstm_packed,
        "lstm_cell": _lstm_cell,
        "gru_cell": _gru_cell,
    }
    for name in ("gru", "rnn_tanh", "rnn_relu"):
        table[f"{name}.input"] = _one_state(name)
        table[f"{name}.data"] = _one_state_packed(name)
    return table
