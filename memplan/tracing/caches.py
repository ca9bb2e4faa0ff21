"""What transformers caches of keys and values while it generates, layer by layer, as shapes alone."""

from collections.abc import Iterator
from typing import Any

import torch

from memplan.tracing.records import CacheLayer
from memplan.units import Bytes

_PARTS = ("keys", "values", "indexer_keys")
"""Tensors of a layer (transformers, cache_utils.py, 5.24)."""


def cache_layers(output: Any) -> tuple[CacheLayer, ...]:
    """The layers of the cache that a model returned; empty where it has none that grows with the tokens."""
    # Read past the output's attributes: since transformers 5.24 the older name is a property that warns.
    fields = getattr(output, "__dict__", {})
    cache = fields.get("cache", fields.get("past_key_values"))
    halves = [getattr(cache, name, None) for name in ("self_attention_cache", "cross_attention_cache")]
    parts = [cache] if halves == [None, None] else halves
    return tuple(found for part in parts for layer in getattr(part, "layers", ()) for found in _of(layer))


def _of(layer: Any) -> Iterator[CacheLayer]:
    tensors = [getattr(layer, name, None) for name in _PARTS]
    held = [tensor for tensor in tensors if isinstance(tensor, torch.Tensor) and tensor.numel()]
    if not held:
        return
    sequences, length = held[0].shape[0], held[0].shape[-2]
    window = getattr(layer, "sliding_window", None) if getattr(layer, "is_sliding", False) else None
    # A layer with a window holds fewer tokens than it has seen.
    seen = getattr(layer, "cumulative_length", length)
    nbytes = sum(tensor.nbytes for tensor in held)
    yield CacheLayer(
        sequences=sequences,
        tokens=seen if isinstance(seen, int) else length,
        window=window if isinstance(window, int) else None,
        token_bytes=Bytes(nbytes // (sequences * length)),
        nbytes=Bytes(nbytes),
    )
