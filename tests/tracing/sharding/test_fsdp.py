"""FSDP2: what a rank holds and when, against bytes worked out by hand."""

from math import ceil, prod

import pytest

from memplan.replay.policy import AllocatorPolicy
from memplan.replay.replay import replay
from memplan.replay.stream import device_requests
from tests.tracing.sharding.nets import BLOCK_SHAPES, BLOCKS, ROOT_SHAPES, Tied, tokens
from tests.tracing.sharding.traces import before_optimizer, born, held, rank_of

FLOAT, HALF = 4, 2
ALL = ROOT_SHAPES + BLOCK_SHAPES * BLOCKS
COPY_IN, REDUCE = 1, 3
"""Streams of FSDP2's collectives, in the order in which it makes them; 2 only waits."""


def shard(shapes: tuple[tuple[int, ...], ...], ranks: int) -> int:
    """Elements of a rank's shards: rows are dealt out in chunks of equal size, the last ones padded."""
    return sum(ceil(shape[0] / ranks) * prod(shape[1:]) for shape in shapes)


def own(shapes: tuple[tuple[int, ...], ...], ranks: int, rank: int) -> int:
    """The same without padding: the last ranks have fewer rows, or none."""
    chunks = [ceil(shape[0] / ranks) for shape in shapes]
    rows = [max(0, min(shape[0] - rank * chunk, chunk)) for shape, chunk in zip(shapes, chunks, strict=True)]
    return sum(count * prod(shape[1:]) for count, shape in zip(rows, shapes, strict=True))


def whole(shapes: tuple[tuple[int, ...], ...]) -> int:
    return sum(map(prod, shapes))


@pytest.mark.parametrize(("ranks", "rank"), [(1, 0), (3, 0), (3, 2), (8, 5)])
def test_a_rank_holds_its_padded_shard_of_parameters_gradients_and_states(ranks: int, rank: int) -> None:
    trace = rank_of(f"fsdp={ranks}", rank=rank)
    share = FLOAT * shard(ALL, ranks)
    assert held(trace, "parameter") == share
    assert held(trace, "optimizer_state") == 2 * FLOAT * own(ALL, ranks, rank)
    gradients = [each for each in before_optimizer(trace) if each.role == "gradient"]
    assert sum(each.nbytes for each in gradients) == share
    assert trace.repeats


def test_shards_of_all_ranks_are_the_whole() -> None:
    assert sum(held(rank_of("fsdp=4", rank=rank), "parameter") for rank in range(4)) == FLOAT * whole(ALL)


def test_gathers_are_of_one_block_each_in_half_precision() -> None:
    trace = rank_of("fsdp=8", precision="bf16-mixed")
    gathered = [storage.nbytes for _, storage in born(trace, stream=COPY_IN)]
    block, root = (HALF * 8 * shard(shapes, 8) for shapes in (BLOCK_SHAPES, ROOT_SHAPES))
    # Forward and backward gather every block; the root stays gathered.
    gathers = [block] * 2 * BLOCKS + [root]
    # Each is preceded by a copy of the rank's own shard in half precision.
    assert sorted(gathered) == sorted(gathers + [each // 8 for each in gathers])


def test_gradients_are_reduced_in_single_precision_on_a_stream_of_their_own() -> None:
    trace = rank_of("fsdp=8", precision="bf16-mixed")
    reduced = sorted(storage.nbytes for _, storage in born(trace, stream=REDUCE))
    block, root = (FLOAT * shard(shapes, 8) for shapes in (BLOCK_SHAPES, ROOT_SHAPES))
    assert reduced == sorted([block] * BLOCKS + [root])
    inputs = [storage.nbytes for _, storage in born(trace, stream=0) if storage.nbytes == 8 * block]
    assert len(inputs) == BLOCKS


def test_only_shards_depend_on_the_number_of_ranks() -> None:
    """What is gathered, computed and reduced is of the same size among 4 and among 8."""
    few, many = rank_of("fsdp=4"), rank_of("fsdp=8")
    assert [op.name for op in few.ops] == [op.name for op in many.ops]
    activations = [
        [each.nbytes for op, each in born(trace, stream=0) if op.phase == "forward" and op.name == "aten.addmm.default"]
        for trace in (few, many)
    ]
    assert activations[0] == activations[1]
    assert held(few, "parameter") == 2 * held(many, "parameter")


def test_replicas_of_shards_hold_what_as_many_shards_alone_would() -> None:
    assert held(rank_of("hsdp=2x4"), "optimizer_state") == held(rank_of("fsdp=4"), "optimizer_state")


def test_blocks_kept_until_backward_are_gathered_once() -> None:
    assert len(born(rank_of("fsdp=8,reshard=no"), stream=COPY_IN)) == 1 + BLOCKS
    assert len(born(rank_of("fsdp=8"), stream=COPY_IN)) == 1 + 2 * BLOCKS


def test_offloaded_states_are_on_the_host() -> None:
    trace = rank_of("fsdp=8,offload=yes")
    assert held(trace, "parameter") == held(trace, "optimizer_state") == 0
    share = FLOAT * shard(ALL, 8)
    assert held(trace, "parameter", "pinned") == share
    assert sum(each.nbytes for each in before_optimizer(trace) if each.role == "gradient") == share
    assert {each.place for each in before_optimizer(trace) if each.role == "gradient"} <= {"host", "pinned"}


def test_a_tied_matrix_is_sharded_once() -> None:
    expected = FLOAT * shard(((32, 64), *BLOCK_SHAPES * BLOCKS), 4)
    assert held(rank_of("fsdp=4", model=Tied, batch=tokens), "parameter") == expected


def test_thousands_of_ranks() -> None:
    trace = rank_of("fsdp=4096")
    assert held(trace, "parameter") == FLOAT * shard(ALL, 4096)


def test_accumulated_gradients_stay_sharded() -> None:
    trace = rank_of("fsdp=8", grad_accum=3)
    assert sum(each.nbytes for each in before_optimizer(trace) if each.role == "gradient") == FLOAT * shard(ALL, 8)


def test_gradient_clipping_and_every_implementation_of_the_optimizer_run() -> None:
    for implementation in ("auto", "fused"):
        trace = rank_of("fsdp=2", optimizer_impl=implementation, clip_grad_norm=1.0)
        steps = FLOAT * len(ALL) if implementation == "fused" else 0
        assert held(trace, "optimizer_state") == 2 * FLOAT * shard(ALL, 2) + steps


def test_streams_have_pools_of_their_own() -> None:
    requests = device_requests(rank_of("fsdp=8", batch_size=4096))
    apart = replay(requests, policy=AllocatorPolicy())
    together = replay([request._replace(stream=0) for request in requests], policy=AllocatorPolicy())
    assert {request.stream for request in requests} == {0, COPY_IN, REDUCE}
    assert apart.peak_allocated == together.peak_allocated
    assert apart.segments > together.segments


def test_precision_is_fsdps_own_and_not_autocast() -> None:
    mixed = rank_of("fsdp=8", precision="bf16-mixed")
    first = mixed.ops[: mixed.steps[0].end_op]
    casts = [op for op in first if op.name == "aten._to_copy.default" and op.phase == "forward"]
    # The root's input alone; autocast would cast each weight at each use.
    assert len(casts) == 1
