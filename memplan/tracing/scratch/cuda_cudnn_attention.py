"""Work spaces of cuDNN's attention, as PyTorch asks cuDNN's front end for them.

Backward follows cudnn_frontend's ``CompositeSDPABackwardNode`` (scaled_dot_product_flash_attention.h): row sums of
softmax and a gradient of the queries in float, and where heads of keys and values are shared, their gradients for every
head of the queries. The 256 bytes of either direction are cuDNN's own. All of it was seen, to the byte, on an H100 with
cuDNN 9.19 and torch 2.11 (2026-11-23): head sizes 32 and 64, with dropout and without, grouped heads and equal ones.
"""

from collections.abc import Mapping

from memplan.tracing.scratch.cuda_shapes import FLOAT_BYTES
from memplan.tracing.scratch.rules import Call, Rule, Script, within

_OWN_BYTES = 256


def forward(call: Call) -> Script | None:
    """``_scaled_dot_product_cudnn_attention(query, …)``."""
    del call
    return within({"workspace": _OWN_BYTES})


def backward(call: Call) -> Script | None:
    """``_scaled_dot_product_cudnn_attention_backward(grad_out, query, key, value, …)``."""
    _, query, key, value = call.args[:4]
    batch, heads, queries, head = query.shape
    rows = batch * heads * queries
    shared = key.shape[1] != heads or value.shape[1] != heads
    widened = batch * heads * key.shape[2] * (head + value.shape[3]) * query.element_size() if shared else 0
    return within({"workspace": rows * FLOAT_BYTES + rows * head * FLOAT_BYTES + widened + _OWN_BYTES})


CUDNN_ATTENTION_RULES: Mapping[str, Rule] = {
    "aten._scaled_dot_product_cudnn_attention.default": forward,
    "aten._scaled_dot_product_cudnn_attention_backward.default": backward,
}
"""Op name → rule."""
