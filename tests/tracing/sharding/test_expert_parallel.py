"""Expert parallelism: every rank has its part of the experts, and tokens travel to theirs and back."""

import pytest

from memplan.errors import UsageError
from tests.support.libraries import library
from tests.tracing.jobs import source
from tests.tracing.sharding.toy import BATCH, TOKENS, decoder, needs_recent_torch, parameter_bytes, traced, words

pytestmark = needs_recent_torch

HIDDEN, INNER, LAYERS, EXPERTS, CHOSEN, WORDS = 32, 16, 2, 8, 2, 64
OF_EXPERTS = LAYERS * EXPERTS * 3 * HIDDEN * INNER
transformers = library("transformers")
experts = library("transformers.distributed.expert_parallel")


def mixtral():
    config = transformers.MixtralConfig(
        hidden_size=HIDDEN,
        intermediate_size=INNER,
        num_hidden_layers=LAYERS,
        num_attention_heads=4,
        num_key_value_heads=4,
        num_local_experts=EXPERTS,
        num_experts_per_tok=CHOSEN,
        vocab_size=WORDS,
        output_router_logits=False,
    )
    return source(
        lambda: transformers.MixtralForCausalLM(config),
        lambda size: {"input_ids": (given := words(size)), "labels": given, "use_cache": False},
        default_seq_len=TOKENS,
    )


def moe(parallel: str, **options):
    return traced(parallel, given=mixtral(), precision="bf16", **options)


@pytest.mark.parametrize(("parallel", "copies"), [("fsdp=4,ep=2", 4), ("fsdp=8,ep=8", 8)])
def test_experts_and_the_rest_are_shared_over_all_ranks(parallel, copies):
    whole = parameter_bytes(moe("none"))
    rest = whole - OF_EXPERTS * 2
    assert OF_EXPERTS * 2 // copies < parameter_bytes(moe(parallel)) <= (OF_EXPERTS * 2 + rest) // copies + 2 * 200


def test_a_rank_of_replicas_has_what_a_rank_of_one_copy_has():
    assert parameter_bytes(moe("hsdp=2x4,ep=4")) == parameter_bytes(moe("fsdp=4,ep=4"))


def test_with_balance_as_many_tokens_come_as_go():
    trace = moe("fsdp=4,ep=4")
    exchanged = [op for op in trace.ops if op.name == "_c10d_functional.all_to_all_single.default"]
    # There and back, forward and backward, in every layer of every step.
    assert len(exchanged) == 4 * LAYERS * len(trace.steps)
    written = {trace.storages[storage].nbytes for op in exchanged for storage in op.writes}
    assert written == {BATCH * TOKENS * CHOSEN * HIDDEN * 2}
    assert any("routed evenly" in sentence for sentence in trace.assumptions)


@pytest.mark.parametrize(
    ("parallel", "given", "said"),
    [
        ("ddp=4,ep=4", mixtral, "among ranks of fsdp"),
        ("fsdp=4,ep=3", mixtral, "cannot be cut into groups of 3"),
        ("fsdp=2,tp=2,ep=2", mixtral, "nor memplan with tensor parallelism"),
        ("fsdp=16,ep=16", mixtral, "evenly shard 8 experts"),
        ("fsdp=2,ep=2", decoder, "no expert plan for Decoder"),
    ],
)
def test_what_cannot_be_shared_is_refused(parallel, given, said):
    with pytest.raises(UsageError, match=said):
        traced(parallel, given=given(), precision="bf16")
