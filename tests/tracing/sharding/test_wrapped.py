"""DDP and FSDP1, which wrap a model."""

from math import prod

import pytest
import torch
from torch import nn
from torch.distributed.fsdp import FullyShardedDataParallel

from memplan.errors import EstimateError, UsageError
from memplan.tracing.records import Trace
from memplan.tracing.run import trace_job
from tests.tracing.jobs import source, spec
from tests.tracing.sharding.nets import BLOCK_SHAPES, BLOCKS, ROOT_SHAPES, Net, rows
from tests.tracing.sharding.toy import needs_recent_torch
from tests.tracing.sharding.traces import GPU, before_optimizer, held, rank_of

FLOAT = 4
WHOLE = FLOAT * sum(map(prod, ROOT_SHAPES + BLOCK_SHAPES * BLOCKS))


def test_every_rank_of_ddp_holds_the_whole() -> None:
    trace = rank_of("ddp=8")
    assert held(trace, "parameter") == WHOLE
    assert held(trace, "optimizer_state") == 2 * WHOLE
    names = {storage.name for storage in trace.storages if storage.role == "parameter"}
    assert "layers.0.up.weight" in names


def test_gradients_of_ddp_are_copied_into_buckets_from_the_first_step_on() -> None:
    trace = rank_of("ddp=8")
    gradients = [each for each in before_optimizer(trace) if each.role == "gradient"]
    assert sum(each.nbytes for each in gradients) == 2 * WHOLE
    # The first bucket takes what comes first in backward, up to 1 MiB: here it takes everything.
    assert max(each.nbytes for each in gradients) == WHOLE


def test_ddp_reduces_after_the_last_micro_batch_alone() -> None:
    several, one = rank_of("ddp=8", grad_accum=3), rank_of("ddp=8")
    copies = [
        sum(op.name == "aten.copy_.default" and op.phase == "backward" for op in trace.ops[trace.steps[-1].first_op :])
        for trace in (several, one)
    ]
    assert copies[0] == copies[1] > 0
    assert any("no_sync" in sentence for sentence in several.assumptions)


@pytest.mark.parametrize("parallel", ["fsdp1=4", "fsdp1=4,reshard=no"])
def test_fsdp1_holds_flat_shards_of_blocks(parallel: str) -> None:
    trace = rank_of(parallel)
    # Flat parameters of a unit are divided evenly: none of these needs padding.
    assert held(trace, "parameter") == WHOLE // 4
    assert held(trace, "optimizer_state") == 2 * WHOLE // 4
    assert {storage.stream for storage in trace.storages if storage.place == "device"} >= {0, 1, 2}


def test_fsdp1_keeps_gathered_blocks_where_it_must_not_reshard() -> None:
    def gathers(parallel: str) -> int:
        trace = rank_of(parallel)
        return sum("_allgather_base_" in op.name for op in trace.ops[trace.steps[-1].first_op :])

    assert gathers("fsdp1=4") == 1 + 2 * BLOCKS
    assert gathers("fsdp1=4,reshard=no") == 1 + BLOCKS


def test_fsdp1_waits_for_gathered_blocks_that_the_next_but_one_needs() -> None:
    trace = rank_of("fsdp1=4")
    step = trace.steps[-1]
    back = [
        index + trace.storages[storage].pending
        for index, (action, storage, _) in enumerate(trace.events)
        if action == "free" and index >= step.first_event and trace.storages[storage].pending
    ]
    # torch/distributed/fsdp/_limiter_utils.py: two may be on their way, a third waits. The end frees the rest.
    assert step.first_event < back[0] < step.end_event - 1
    assert set(back[1:]) == {step.end_event - 1}


def test_fsdp1_offloads_to_the_host() -> None:
    trace = rank_of("fsdp1=4,offload=yes")
    assert held(trace, "parameter") == held(trace, "optimizer_state") == 0
    assert held(trace, "optimizer_state", "host") >= 2 * WHOLE // 4


def plainly() -> nn.Module:
    return FullyShardedDataParallel(Net())


def onto_the_gpu() -> nn.Module:
    return FullyShardedDataParallel(Net(), device_id=torch.cuda.current_device())


def block_by_block() -> nn.Module:
    net = Net()
    for index, layer in enumerate(net.layers):
        net.layers[index] = FullyShardedDataParallel(layer, use_orig_params=True)
    return FullyShardedDataParallel(net, use_orig_params=True)


@pytest.mark.parametrize("model", [plainly, block_by_block])
def test_a_target_may_wrap_its_model_in_fsdp1_without_naming_a_device(model: type[nn.Module]) -> None:
    trace = rank_of("fsdp1=4", model=model)
    assert trace.model.parameters == trace.model.trainable_parameters == WHOLE // FLOAT
    assert held(trace, "parameter") == WHOLE // 4
    assert held(trace, "optimizer_state") == 2 * WHOLE // 4
    assert any("own FullyShardedDataParallel" in sentence for sentence in trace.assumptions)


def test_naming_the_device_changes_no_allocation_of_a_step() -> None:
    def allocations(trace: Trace) -> list[tuple[str, str, int]]:
        events = trace.events[trace.steps[-1].first_event :]
        return [
            (each.action, trace.storages[each.storage].role, trace.storages[each.storage].nbytes) for each in events
        ]

    plain, named = (rank_of("fsdp1=4", model=model) for model in (plainly, onto_the_gpu))
    assert allocations(plain) == allocations(named)


@needs_recent_torch
def test_a_model_that_is_wrapped_over_all_ranks_is_shared_in_no_other_way() -> None:
    with pytest.raises(UsageError, match="takes all ranks"):
        rank_of("tp=2", model=plainly)


def test_a_wrapped_model_of_nobody_knows_how_many_ranks_is_asked_for_them() -> None:
    with pytest.raises(EstimateError) as refused:
        trace_job(lambda: source(plainly, rows), spec(batch_size=4), GPU)
    assert "--parallel fsdp1=8" in (refused.value.hint or "")
