"""Context parallelism: every rank has its part of the sequence, and meets all keys and values around the ring."""

import pytest
from torch import nn

from memplan.errors import UsageError
from tests.trace.jobs import source
from tests.trace.sharding.toy import (
    BATCH,
    BLOCKS,
    TOKENS,
    WIDTH,
    Decoder,
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


def test_parameters_are_sharded_over_the_ranks_of_a_sequence_too():
    alone = parameter_bytes(traced("none", **OPTIONS))
    assert parameter_bytes(traced("fsdp=2,cp=2", **OPTIONS)) == alone / 4


def test_stages_of_a_pipeline_share_the_sequence_too():
    trace = traced("cp=2,pp=2,micro=2", 2, **OPTIONS)
    hidden = BATCH * TOKENS * WIDTH * 2 // 2
    assert any(each.nbytes == hidden for each in trace.storages)
    assert sum(op.name == FLASH for op in trace.ops) == len(trace.steps) * 2 * BLOCKS // 2 * 2


def test_attention_is_itself_again_afterwards():
    before = nn.functional.scaled_dot_product_attention
    traced("cp=2", **OPTIONS)
    assert nn.functional.scaled_dot_product_attention is before


@pytest.mark.parametrize("ranks", [3, 16])
def test_uneven_parts_are_refused(ranks):
    with pytest.raises(UsageError, match=f"{ranks} ranks cannot share {TOKENS} tokens"):
        traced(f"cp={ranks}", seq_len=TOKENS, **OPTIONS)


def test_a_train_step_of_the_users_own_shares_no_sequence():
    given = source(Decoder, words, train_step=lambda model, optimizer, batch: None)
    with pytest.raises(UsageError, match="--parallel cp would change nothing"):
        traced("cp=2", given=given)
