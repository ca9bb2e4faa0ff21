"""The fast path of ``nn.MultiheadAttention`` and ``nn.TransformerEncoderLayer`` on CPU, as the ops that its C++ calls.

Follows aten/src/ATen/native/transformers: attention.cpp ``native_multi_head_attention_cpu`` and transformer.cpp
``transformer_encoder_layer_forward``. Modules take it where no gradient is wanted.
"""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import torch

from memplan.seam.operators import RestorePythonTLSSnapshot

if TYPE_CHECKING:
    from memplan.tracing.guesses import Guesses

_aten = torch.ops.aten


def attention(_: "Guesses", __: Any, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Any:
    """``_native_multi_head_attention``: scores are turned into weights, and queries into results, where they lie."""
    query, key, value, _width, heads, weight, bias, proj_weight, proj_bias, *_rest = args
    mask, needs_weights, averages, mask_type = _options(args, kwargs)
    qkv = _projected(query, key, value, weight)
    if not qkv.numel():
        return torch.empty_like(query), None
    # Values lie behind queries and keys, in one tensor.
    queries, keys, values = _aten._transform_bias_rescale_qkv(qkv, bias, heads)
    del qkv
    batch, _heads, length, _head = queries.shape
    scores = torch.bmm(queries.flatten(0, 1), keys.flatten(0, 1).mT).view(batch, heads, length, length)
    scores = _softmax(scores, mask, mask_type)
    torch.bmm(scores.flatten(0, 1), values.flatten(0, 1), out=queries.flatten(0, 1))
    del values
    if not needs_weights:
        del scores
    turned = queries.transpose(1, 2).contiguous()
    result = torch.nn.functional.linear(turned.view(batch * length, -1), proj_weight, proj_bias)
    result = result.view(batch, length, -1)
    del turned
    if not needs_weights:
        return result, None
    return result, scores.sum(1).div_(heads) if averages else scores


def _options(args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> tuple[Any, ...]:
    named = {"mask": None, "need_weights": True, "average_attn_weights": True, "mask_type": None}
    given = dict(zip(named, args[9:], strict=False))
    return tuple((named | given | dict(kwargs)).values())


def _projected(query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
    """Queries, keys and values side by side: one product, if they are made of one tensor."""
    if query is key is value:
        return torch.matmul(query, weight.t())
    width = weight.shape[1]
    if key is value:
        parts, sources = torch.split(weight, [width, 2 * width]), [query, key]
    else:
        parts, sources = weight.chunk(3), [query, key, value]
    return torch.cat([torch.matmul(source, part.t()) for source, part in zip(sources, parts, strict=True)], 2)


def _softmax(scores: torch.Tensor, mask: torch.Tensor | None, mask_type: int | None) -> torch.Tensor:
    """``masked_softmax``: a result of its own only with a mask, which is one of booleans."""
    if mask is None:
        return scores
    weights: torch.Tensor = _aten._masked_softmax(scores, mask.to(torch.bool), scores.dim() - 1, mask_type)
    return weights


def encoder_layer(_: "Guesses", __: Any, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Any:
    """``_transformer_encoder_layer_fwd``, which autocast leaves alone: it changes the ops inside."""
    with RestorePythonTLSSnapshot():
        is_mixed, narrow = torch.is_autocast_enabled("cpu"), torch.get_autocast_dtype("cpu")
    with torch.autocast("cpu", narrow, enabled=is_mixed):
        return _encoder_layer(args, kwargs)


def _encoder_layer(args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> torch.Tensor:
    source: torch.Tensor
    source, width, heads, *attention_weights = args[:7]
    is_gelu, norm_first, eps, *weights = args[7:18]
    mask, mask_type = ((*args[18:], None, None)[at] if len(args) > 18 + at else kwargs.get(name)
                       for at, name in enumerate(("mask", "mask_type")))  # fmt: skip
    first, second, ffn = weights[:2], weights[2:4], weights[4:]
    if not source.numel():
        return source.clone()

    def normed(tensor: torch.Tensor, norm: list[torch.Tensor]) -> torch.Tensor:
        return torch.layer_norm(tensor, [width], norm[0], norm[1], eps)

    found = normed(source, first) if norm_first else source
    found = _aten._native_multi_head_attention(
        found, found, found, width, heads, *attention_weights, mask, False, True, mask_type
    )[0]
    found.add_(source)
    if not norm_first:
        found = normed(found, first)
    beside = found
    if norm_first:
        found = normed(found, second)
    found = _feed_forward(found, *ffn, is_gelu=is_gelu)
    found.add_(beside)
    del beside
    result: torch.Tensor = found if norm_first else normed(found, second)
    return result


def _feed_forward(
    source: torch.Tensor,
    weight: torch.Tensor,
    bias: torch.Tensor,
    second_weight: torch.Tensor,
    second_bias: torch.Tensor,
    *,
    is_gelu: bool,
) -> torch.Tensor:
    rows = source.view(-1, source.shape[-1])
    inner = _aten._addmm_activation(bias, rows, weight.t(), use_gelu=is_gelu)
    return torch.addmm(second_bias, inner, second_weight.t()).view(source.shape)


BODIES = {
    "aten._native_multi_head_attention.default": attention,
    "aten._transformer_encoder_layer_fwd.default": encoder_layer,
}
"""Op name → its body on the CPU."""
