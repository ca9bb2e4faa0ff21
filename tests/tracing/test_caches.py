"""Caches of keys and values as the trace sees them, and in blocks: against formulas on configurations, and by force."""

from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import nn

from memplan.errors import UsageError
from memplan.measure.kv_cache import kv_cache
from memplan.tracing.records import CacheLayer, Trace
from memplan.units import Bytes
from tests.support.libraries import library
from tests.tracing.jobs import source, trace

transformers = library("transformers", minversion="5.0")

PROMPT, NEW, SEQUENCES, FLOAT = 21, 4, 2, 4
TOKENS = PROMPT + NEW - 1
"""The last one is chosen, but never fed."""
SMALL = {
    "vocab_size": 48, "hidden_size": 32, "intermediate_size": 24, "num_hidden_layers": 2, "num_attention_heads": 4,
    "max_position_embeddings": 64,
}  # fmt: skip


def prompt(size: int) -> dict[str, torch.Tensor]:
    return {"input_ids": torch.randint(3, 48, (size, PROMPT))}


def generation(model: Any, batch: Any = prompt, **options: Any) -> Trace:
    return trace(source(model, batch), mode="generate", max_new_tokens=NEW, batch_size=SEQUENCES, **options)


def llama(**changes: Any) -> nn.Module:
    return transformers.LlamaForCausalLM(transformers.LlamaConfig(**SMALL | changes))


@pytest.mark.parametrize("heads", [4, 2, 1])
def test_grouped_heads_cache_their_own_keys_and_values(heads: int) -> None:
    found = generation(lambda: llama(num_key_value_heads=heads)).cache
    token = 2 * heads * 8 * FLOAT
    expected = CacheLayer(
        sequences=SEQUENCES, tokens=TOKENS, window=None, token_bytes=token, nbytes=SEQUENCES * TOKENS * token
    )
    assert found == (expected, expected)
    paged = kv_cache(found, 16)
    assert paged is not None
    # 24 tokens take two blocks of 16, in each of two layers.
    assert (paged.blocks, paged.paged_bytes) == (SEQUENCES * 2 * 2, SEQUENCES * 2 * 2 * 16 * token)


def test_a_window_bounds_what_its_layers_keep() -> None:
    def model() -> nn.Module:
        config = transformers.Gemma2Config(
            **SMALL, num_key_value_heads=2, head_dim=8, sliding_window=7,
            layer_types=["sliding_attention", "full_attention"],
        )  # fmt: skip
        return transformers.Gemma2ForCausalLM(config)

    sliding, full = generation(model).cache
    token = 2 * 2 * 8 * FLOAT
    assert (sliding.window, sliding.tokens, sliding.token_bytes) == (7, TOKENS, token)
    assert (full.window, full.tokens, full.token_bytes) == (None, TOKENS, token)
    # transformers keeps the last six tokens, and the seventh is the one being fed.
    assert sliding.nbytes == SEQUENCES * 6 * token
    assert kv_cache((sliding, full), 4).blocks == SEQUENCES * (3 + 6)  # type: ignore[union-attr]


def test_latent_attention_caches_its_latent() -> None:
    rank, rotary = 16, 4

    def model() -> nn.Module:
        config = transformers.DeepseekV3Config(
            **SMALL, num_key_value_heads=4, kv_lora_rank=rank, q_lora_rank=None, qk_rope_head_dim=rotary,
            qk_nope_head_dim=4, v_head_dim=8, first_k_dense_replace=2, moe_intermediate_size=8, n_routed_experts=4,
            n_group=1, topk_group=1, num_experts_per_tok=2,
        )  # fmt: skip
        return transformers.DeepseekV3ForCausalLM(config)

    assert [layer.token_bytes for layer in generation(model).cache] == [(rank + rotary) * FLOAT] * 2


def test_an_encoder_s_states_are_cached_too() -> None:
    def model() -> nn.Module:
        config = transformers.T5Config(
            vocab_size=48, d_model=16, d_kv=4, d_ff=32, num_layers=2, num_heads=4, decoder_start_token_id=0
        )
        return transformers.T5ForConditionalGeneration(config)

    found = generation(model).cache
    # The decoder begins with one token of its own; the encoder's states are those of the prompt.
    assert [layer.tokens for layer in found] == [NEW, NEW, PROMPT, PROMPT]


def test_only_generations_have_one() -> None:
    assert kv_cache(trace(source(llama, prompt), mode="inference").cache, 16) is None


def test_the_targets_own_generation_keeps_it_to_itself() -> None:
    given = source(llama, prompt, generate=lambda model, batch: model(**batch).logits)
    with pytest.raises(UsageError, match="keeps its cache to itself"):
        trace(given, mode="generate", kv_block_size=16)


@given(st.integers(1, 5), st.integers(1, 300), st.none() | st.integers(1, 100), st.integers(1, 40), st.integers(1, 64))
def test_blocks_hold_every_token_that_is_looked_at(
    sequences: int, tokens: int, window: int | None, size: int, token_bytes: int
) -> None:
    layer = CacheLayer(
        sequences=sequences, tokens=tokens, window=window, token_bytes=Bytes(token_bytes), nbytes=Bytes(1)
    )
    found = kv_cache([layer], size)
    assert found is not None
    # By force: a block for each token that the last one looks back on, wherever the sequence is when it ends.
    seen = tokens if window is None else min(tokens, window)
    touched = max(len({token // size for token in range(end - seen, end)}) for end in range(seen, tokens + 1))
    each = found.blocks // sequences
    assert touched <= each <= touched + (window is not None)
    assert found.paged_bytes == found.blocks * size * token_bytes
