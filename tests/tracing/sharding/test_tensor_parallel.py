"""Tensor parallelism: every rank has its part of what the plan shares, and all of the rest."""

import pytest
import torch
from torch import nn

from memplan.errors import UsageError
from memplan.job.parallel import ALONE, parse_parallel
from memplan.tracing.parameter_kinds import clip
from tests.support.ranks import real_ranks
from tests.tracing.jobs import source
from tests.tracing.sharding import real_layers
from tests.tracing.sharding.toy import (
    BATCH,
    BLOCKS,
    TOKENS,
    WIDTH,
    WORDS,
    decoder,
    needs_recent_torch,
    parameter_bytes,
    traced,
    words,
)

pytestmark = needs_recent_torch
NORMS = (2 * BLOCKS + 1) * 2 * WIDTH
SHARED = BLOCKS * (4 * WIDTH * WIDTH + 3 * 4 * WIDTH * WIDTH) + 2 * WORDS * WIDTH
"""Elements of the toy's norms, and of its linear layers and embedding."""


def test_every_rank_has_its_part_of_layers_and_vocabulary_and_all_norms():
    assert parameter_bytes(traced("tp=4")) == 4 * (SHARED // 4 + NORMS)


def test_one_rank_is_no_parallelism():
    assert parse_parallel("tp=1") == ALONE


def test_norms_see_their_part_of_the_sequence():
    trace = traced("tp=4")
    sums = [each for each in trace.storages if trace.ops[each.birth].name == "aten.native_layer_norm.default"]
    assert max(each.nbytes for each in sums) == BATCH * TOKENS * WIDTH * 4 / 4
    assert any("reduce_scatter_tensor" in op.name for op in trace.ops)


def test_gathered_sequences_go_into_every_attention_and_feed_forward_once():
    forward = [op.name for op in traced("tp=2").ops if op.phase == "forward"]
    gathered = forward.count("_c10d_functional.all_gather_into_tensor.default")
    # Two steps; one more gathers the sequence for the head, and one the logits.
    assert gathered == 2 * (2 * BLOCKS + 2)


@pytest.mark.filterwarnings("ignore:FSDP2-wrapped module")
def test_sharded_and_tensor_parallel():
    together = parameter_bytes(traced("fsdp=2,tp=2"))
    assert together == parameter_bytes(traced("tp=2")) / 2


def test_a_model_with_more_than_one_embedding_keeps_its_sequence_whole():
    class Positions(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.inner, self.positions = decoder().model(), nn.Embedding(TOKENS, WIDTH)

        def forward(self, given):
            hidden = self.inner.embedding(given) + self.positions(torch.arange(TOKENS))
            for layer in self.inner.layers:
                hidden = layer(hidden)
            return self.inner.head(self.inner.norm(hidden))

    trace = traced("tp=2", given=decoder(Positions))
    assert not any("reduce_scatter_tensor" in op.name for op in trace.ops)
    whole = NORMS + 2 * WORDS * WIDTH + TOKENS * WIDTH
    assert parameter_bytes(trace) == 4 * (whole + (SHARED - 2 * WORDS * WIDTH) // 2)


def tiny_llama(**options):
    transformers = pytest.importorskip("transformers")
    pytest.importorskip("transformers.distributed.tensor_parallel")
    config = transformers.LlamaConfig(
        hidden_size=32,
        intermediate_size=64,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
        vocab_size=64,
        **options,
    )
    return source(
        lambda: transformers.LlamaForCausalLM(config),
        lambda size: {"input_ids": (given := words(size)), "labels": given, "use_cache": False},
        default_seq_len=TOKENS,
    )


@pytest.mark.parametrize("tied", [False, True])
def test_transformers_share_by_their_own_plan(tied):
    trace = traced("tp=2", given=tiny_llama(tie_word_embeddings=tied))
    attention, feed_forward = 2 * 32 * 32 + 2 * 32 * 16, 3 * 32 * 64
    shared = 2 * (attention + feed_forward) + (1 if tied else 2) * 64 * 32
    assert parameter_bytes(trace) == 4 * (shared // 2 + 5 * 32)
    assert any("transformers' plan" in sentence for sentence in trace.assumptions)


def test_gradients_of_plain_and_shared_parameters_are_clipped_and_stepped_together():
    trace = traced("tp=2", given=tiny_llama(), clip_grad_norm=1.0, optimizer="adamw")
    states = sum(each.nbytes for each in trace.storages if each.role == "optimizer_state" and each.place == "device")
    assert states == 2 * parameter_bytes(trace)


def test_clipping_kinds_together_is_clipping_them_all():
    torch.manual_seed(0)
    one, other = ([nn.Parameter(torch.randn(5)) for _ in range(4)] for _ in range(2))
    for first, second in zip(one, other, strict=True):
        first.grad = torch.randn(5)
        second.grad = first.grad.clone()
    for parameter in one[::2]:
        parameter.device_mesh = "of two ranks"
    clip(one, 0.5)
    nn.utils.clip_grad_norm_(other, 0.5)
    for first, second in zip(one, other, strict=True):
        torch.testing.assert_close(first.grad, second.grad)


@pytest.mark.parametrize(
    ("parallel", "given", "said"),
    [
        ("tp=3", tiny_llama, "3 ranks cannot share 4 heads"),
        ("tp=4", tiny_llama, "4 ranks cannot share 2 heads"),
        ("tp=8", decoder, "8 ranks cannot share layers.0.attention.n_heads evenly: 4"),
        ("tp=2", lambda: source(lambda: nn.Linear(4, 4), lambda size: torch.ones(size, 4)), "no layers whose names"),
    ],
)
def test_what_cannot_be_shared_is_refused(parallel, given, said):
    with pytest.raises(UsageError, match=said):
        traced(parallel, given=given())


def test_a_real_rank_holds_the_same(tmp_path):
    """Two processes share the model as torch's tutorial says, and report what they hold."""
    real = real_ranks(real_layers.tensor_parallel, 2, tmp_path)
    trace = traced("tp=2", given=source(real_layers.Layers, real_layers.batch, loss=real_layers.loss))
    assert [each["parameters"] for each in real] == [parameter_bytes(trace)] * 2
    assert [each["saved"] for each in real] == [saved_bytes(trace)] * 2


def saved_bytes(trace) -> int:
    """What forward leaves for backward, output and loss included."""
    backward = next(op.index for op in trace.ops if op.name == "aten.ones_like.default")
    alive: dict[int, int] = {}
    for event in trace.events:
        if event.op >= backward:
            break
        storage = trace.storages[event.storage]
        if event.action == "free":
            alive.pop(event.storage, None)
        elif storage.place == "device" and storage.role in {"intermediate", "input"}:
            alive[event.storage] = storage.nbytes
    return sum(alive.values())
