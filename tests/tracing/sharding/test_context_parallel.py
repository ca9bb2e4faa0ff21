"""Context parallelism: every rank has its part of the sequence, and meets all keys and values around the ring."""

from contextlib import nullcontext

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import nn

from memplan.errors import UsageError
from memplan.job.source import ModelSource
from memplan.tracing.records import Trace
from memplan.tracing.sharding import context_parallel
from memplan.tracing.sharding.ring import GatheredKeys
from tests.tracing.jobs import source
from tests.tracing.sharding.toy import (
    BATCH,
    BLOCKS,
    HEADS,
    TOKENS,
    WIDTH,
    WORDS,
    Decoder,
    loss,
    needs_recent_torch,
    parameter_bytes,
    traced,
    words,
)

pytestmark = needs_recent_torch

FLASH = "aten._scaled_dot_product_flash_attention.default"
OPTIONS = {"precision": "bf16"}
"""Flash attention takes 16-bit types alone."""


def test_attention_runs_once_for_every_rank_of_the_ring():
    ranks = 4
    trace = traced(f"cp={ranks}", **OPTIONS)
    names = [op.name for op in trace.ops]
    assert names.count(FLASH) == len(trace.steps) * BLOCKS * ranks
    assert names.count(FLASH.replace(".default", "_backward.default")) == len(trace.steps) * BLOCKS * ranks


@pytest.mark.parametrize("ranks", [1, 4])
def test_activations_are_of_a_part_of_the_sequence(ranks):
    trace = traced(f"cp={ranks}", **OPTIONS)
    gates = [each for each in trace.storages if trace.ops[each.birth].name == "aten.silu.default" and not each.name]
    assert {each.nbytes for each in gates if each.role == "intermediate"} == {BATCH * TOKENS * 4 * WIDTH * 2 // ranks}


@pytest.mark.parametrize(("shards", "precision"), [(2, "bf16"), (4, "bf16-mixed")])
def test_parameters_are_sharded_over_the_ranks_of_a_sequence_too(shards, precision):
    alone, both = (traced(words, precision=precision) for words in ("none", f"fsdp={shards},cp=2"))
    assert parameter_bytes(both) == parameter_bytes(alone) / (2 * shards)
    # Attention of every layer, on the part of each of the two ranks.
    assert _attentions(both) == 2 * _attentions(alone) > 0


def test_efficient_attention_goes_around_the_ring_in_fp32():
    # Its logarithms of sums come in multiples of 32 rows, and torch's ring merges them as they come.
    long = source(Decoder, lambda size: words(size).repeat(1, 128 // TOKENS), loss=loss, default_seq_len=128)
    assert _attentions(traced("fsdp=4,cp=2", given=long)) == 2 * BLOCKS


def _attentions(trace: Trace) -> float:
    """Forward calls of fused kernels in a step."""
    ends = "_attention.default"
    found = [op for op in trace.ops if "scaled_dot_product" in op.name and op.name.endswith(ends)]
    return len(found) / len(trace.steps)


def _grouped() -> ModelSource:
    """A decoder of transformers whose heads share keys and values, as SmolLM2's and Llama 3's do."""
    transformers = pytest.importorskip("transformers")
    config = transformers.LlamaConfig(
        hidden_size=WIDTH, intermediate_size=2 * WIDTH, vocab_size=WORDS, num_hidden_layers=BLOCKS,
        num_attention_heads=HEADS, num_key_value_heads=HEADS // 2,
    )  # fmt: skip
    return source(
        lambda: transformers.LlamaForCausalLM(config),
        lambda size: dict.fromkeys(("input_ids", "labels"), words(size)),
        default_seq_len=TOKENS,
    )


@pytest.mark.parametrize("precision", ["bf16", "bf16-mixed"])
def test_grouped_heads_go_around_the_ring_in_16_bits(precision):
    trace = traced("fsdp=4,cp=2", given=_grouped(), precision=precision)
    assert _attentions(trace) == 2 * BLOCKS


@pytest.mark.parametrize("options", [{"precision": "fp32"}, {"precision": "bf16", "attention": "math"}])
def test_what_the_math_kernel_alone_can_run_is_refused(options):
    with pytest.raises(UsageError, match="ranks cannot share causal attention on the math kernel"):
        traced("fsdp=4,cp=2", given=_grouped(), **options)


def test_stages_of_a_pipeline_share_the_sequence_too():
    trace = traced("cp=2,pp=2,micro=2", 2, **OPTIONS)
    hidden = BATCH * TOKENS * WIDTH * 2 // 2
    assert any(each.nbytes == hidden for each in trace.storages)
    assert sum(op.name == FLASH for op in trace.ops) == len(trace.steps) * 2 * BLOCKS // 2 * 2


def test_attention_is_itself_again_afterwards():
    before = nn.functional.scaled_dot_product_attention
    traced("cp=2", **OPTIONS)
    assert nn.functional.scaled_dot_product_attention is before


@pytest.mark.parametrize(("ranks", "length"), [(3, 18), (16, 32), (4, TOKENS)])
def test_sequences_are_padded_to_a_length_that_ranks_can_share(ranks, length):
    given = ModelSource(model=Decoder, batch=lambda size, length: words(size)[:, :1].repeat(1, length), loss=loss)
    trace, even = (traced(f"cp={ranks}", given=given, seq_len=tokens, **OPTIONS) for tokens in (TOKENS, length))
    assert trace.seq_len == even.seq_len == length
    assert trace.events == even.events
    assert [each.nbytes for each in trace.storages] == [each.nbytes for each in even.storages]
    said = [each for each in trace.assumptions if "padded" in each]
    assert said == [each for each in trace.assumptions if each not in even.assumptions]
    assert [str(length) in each for each in said] == [True] * (length > TOKENS)


def test_a_turn_looks_at_one_part_of_what_was_gathered(monkeypatch):
    one = traced("cp=8", **OPTIONS)
    monkeypatch.setattr(context_parallel, "one_part_at_a_time", nullcontext)
    whole = traced("cp=8", **OPTIONS)
    assert (one.events, one.storages) == (whole.events, whole.storages)
    cuts, chunks = (sum(op.name == "aten.split.Tensor" for op in trace.ops) for trace in (one, whole))
    assert cuts < chunks
    assert len(one.ops) == len(whole.ops)


@given(st.integers(1, 5), st.integers(1, 5))
def test_parts_of_what_was_gathered_are_its_chunks(parts, size):
    tensor = torch.arange(parts * size * 2).view(parts * size, 2)
    for index in range(-parts, parts):
        assert torch.equal(GatheredKeys(tensor).chunk(parts)[index], tensor.chunk(parts)[index])


def test_a_train_step_of_the_users_own_shares_no_sequence():
    given = source(Decoder, words, train_step=lambda model, optimizer, batch: None)
    with pytest.raises(UsageError, match="--parallel cp would change nothing"):
        traced("cp=2", given=given)
