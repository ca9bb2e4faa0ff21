"""The cache of keys and values: as the traced generation held it, and in blocks of tokens as servers hold it.

    sequence of 21 tokens, blocks of 8:  |........|........|.....···|   3 blocks, 3 slots empty

Blocks after vLLM's ``v1/kv_cache_interface.py`` (read in November 2026): each layer has blocks of ``block_size``
tokens, ``FullAttentionSpec`` rounds a sequence up to them, and ``SlidingWindowSpec`` needs one more than the window
fills, since a window may begin within a block. What one token takes in one layer is read from the traced cache, so that
grouped heads, latent attention and different layers need no formula.
"""

from collections.abc import Sequence

from memplan.measure.records import KvCache
from memplan.tracing.records import CacheLayer


def kv_cache(layers: Sequence[CacheLayer], block_size: int | None) -> KvCache | None:
    """The cache after the last forward of a generation, in blocks of so many tokens; None where none was seen."""
    if not layers:
        return None
    held = sum(layer.nbytes for layer in layers)
    if block_size is None:
        return KvCache(bytes=held)
    blocks = [layer.sequences * _blocks(layer, block_size) for layer in layers]
    paged = sum(count * block_size * layer.token_bytes for count, layer in zip(blocks, layers, strict=True))
    return KvCache(bytes=held, block_size=block_size, blocks=sum(blocks), paged_bytes=paged)


def _blocks(layer: CacheLayer, size: int) -> int:
    """Blocks of one sequence in one layer."""
    whole = -(-layer.tokens // size)
    return whole if layer.window is None else min(whole, -(-layer.window // size) + 1)
