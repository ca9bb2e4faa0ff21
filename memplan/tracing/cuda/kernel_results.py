"""Results as CUDA's kernels make them, where they return them otherwise: another order, on the host, not at all."""

from collections.abc import Callable, Mapping
from typing import Any

from memplan.tracing.records import Place

Args = tuple[Any, ...]

RESULT_ORDER: Mapping[str, tuple[int, ...]] = {
    # aten/src/ATen/native/cuda/Dropout.cu dropout_cuda: the mask comes first.
    "aten.native_dropout.default": (1, 0),
    # EmbeddingBag.cu _embedding_bag_cuda: sizes and numbers of bags, largest indices, output.
    "aten._embedding_bag.default": (2, 1, 3, 0),
    "aten._embedding_bag_forward_only.default": (2, 1, 3, 0),
    # native/transformers/cuda/attention.cu _cudnn_attention_forward: seed and offset, then output and row sums, which
    # run_cudnn_SDP_fprop (native/cudnn/MHA.cpp) makes; of nine results these four are tensors.
    "aten._scaled_dot_product_cudnn_attention.default": (2, 3, 0, 1),
    # native/cudnn/RNN.cpp _cudnn_rnn: the buffer of all weights, unless it is given, before the reserve.
    "aten._cudnn_rnn.default": (0, 1, 2, 4, 3),
}
"""Op → the tensors among its results, in the order in which its kernel allocates them."""


def _cudnn_attention(args: Args) -> Mapping[int, Place]:
    """MHA.cpp ``run_cudnn_SDP_fprop``: row sums are made for a backward alone."""
    return {} if args[4] else {1: "meta"}


_PLACES: Mapping[str, Callable[[Args], Mapping[int, Place]]] = {
    # aten/src/ATen/native/PackedSequence.cpp
    "aten._pack_padded_sequence.default": lambda _: {1: "host"},
    # Seed and offset are numbers of the host, unless a graph is captured: nothing of eight bytes was allocated on an
    # H100 (torch 2.11, 2026-11-23) or an A100 (torch 2.1), with dropout or without.
    "aten._scaled_dot_product_efficient_attention.default": lambda _: {2: "host", 3: "host"},
    "aten._scaled_dot_product_cudnn_attention.default": _cudnn_attention,
}


def places_apart(name: str, args: Args) -> Mapping[int, Place]:
    """Results of an op that lie elsewhere than its operands; ``meta`` are those without memory."""
    rule = _PLACES.get(name)
    return rule(args) if rule is not None else {}
