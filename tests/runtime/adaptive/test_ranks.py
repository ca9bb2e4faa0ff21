"""Two processes over gloo: the same decisions on both, gradients of DistributedDataParallel, one rank alone in need."""

import time
from collections.abc import Callable
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.tensor import DeviceMesh, distribute_tensor
from torch.nn.parallel import DistributedDataParallel

from memplan.errors import MemplanError, UsageError
from memplan.runtime.adaptive.finder import find_batch
from memplan.runtime.adaptive.micro_batch import AutoMicroBatch
from memplan.runtime.adaptive.ranks import Ranks
from memplan.runtime.adaptive.records import Ended
from tests.runtime.adaptive.shortage import Net, Shortage, Wide, difference, gradients, net
from tests.support.ranks import real_ranks

WORLD = 2
TOLERANCE = 1e-12


def rows(count: int, rank: int) -> torch.Tensor:
    return torch.randn(count, 3, generator=torch.Generator().manual_seed(rank), dtype=torch.float64)


def averaged_by_ddp(count: Callable[[int], int]) -> Net:
    """What DistributedDataParallel leaves after a step in which nobody runs out of memory."""
    whole = net()
    rank = dist.get_rank()
    ddp = DistributedDataParallel(whole, find_unused_parameters=True)
    ddp(rows(count(rank), rank)).pow(2).mean().backward()
    whole.unused.grad = None  # It leaves zeros where nobody has a gradient.
    return whole


def step_of(model: nn.Module, **options: Any) -> AutoMicroBatch:
    return AutoMicroBatch(model, lambda batch: model(batch).pow(2).mean(), **options)


def one_rank_alone_runs_out(rank: int) -> None:
    for op in (0, 9, 25, 40):
        model = net()
        batch = rows(8, rank)
        step = step_of(DistributedDataParallel(model))
        with Shortage(*([op] if rank == 1 else [])) as shortage:
            done = step(batch)
        assert shortage.raised == rank
        assert (done.retries, done.samples, step.micro_batch) == (1, (4, 4), 4)
        assert difference(model, averaged_by_ddp(lambda _: 8)) < TOLERANCE


def batches_of_different_sizes(rank: int) -> None:
    model = net()
    batch = rows(11 - 6 * rank, rank)
    step = step_of(DistributedDataParallel(model), patience=2)
    with Wide(6, width=4) if rank == 0 else nullcontext():
        first = step(batch)
    assert (max(first.samples), step.micro_batch) == (6 - rank, 6)
    assert difference(model, averaged_by_ddp(lambda rank: 11 - 6 * rank)) < TOLERANCE
    sizes = []
    for _ in range(12):
        step(batch)
        sizes.append(step.micro_batch)
    assert all_same(sizes)
    assert sizes[-1] >= 11


def all_same(values: list[int | None]) -> bool:
    ranks = Ranks(dist.group.WORLD)
    numbers = [value or 0 for value in values]
    return list(ranks.minimum(numbers)) == numbers == [-least for least in ranks.minimum([-each for each in numbers])]


def sizes_that_differ_at_first_are_made_the_same(rank: int) -> None:
    step = step_of(net(), micro_batch=3 + rank, ranks=Ranks(dist.group.WORLD))
    step(rows(8, rank))
    assert step.micro_batch == 3


def nobody_can_go_on(rank: int) -> None:
    model = net()
    step = step_of(DistributedDataParallel(model))
    batch = rows(4, rank)
    words = "CUDA out of memory" if rank == 0 else "on another rank"
    with Wide(0, width=4) if rank == 0 else nullcontext(), pytest.raises(torch.OutOfMemoryError, match=words):
        step(batch)
    assert all(gradient is None for gradient in gradients(model).values())


def a_weight_that_one_rank_uses(rank: int) -> None:
    model = net()
    ddp = DistributedDataParallel(model)
    step = AutoMicroBatch(ddp, lambda batch: ddp(batch).pow(2).mean() + rank * model.unused.sum(), micro_batch=2)
    step(rows(4, rank))
    assert torch.equal(model.unused.grad, torch.full((2,), 0.5, dtype=torch.float64))


def batch_norms_run_on_their_own(rank: int) -> None:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4)).double()
    step = step_of(DistributedDataParallel(model))
    batch = rows(8, rank)
    # The buffers that DistributedDataParallel sends around before its first forward would be waited for here. The first
    # three ops are copies of them.
    with Shortage(*([3] if rank == 1 else [])):
        assert step(batch).retries == 1


def the_batch_that_all_can_take(rank: int) -> None:
    ranks = Ranks(dist.group.WORLD)
    capacity = 40 - 13 * rank

    def step_for(size: int) -> None:
        if size > capacity:
            raise torch.OutOfMemoryError("CUDA out of memory.")

    answer = find_batch(step_for, ranks=ranks, prediction=30 + 3 * rank, release=lambda: None)
    assert (answer.size, answer.ended) == (27, Ended.OPTIMAL)
    assert answer.tries[0].size == 30
    assert all_same([each.size for each in answer.tries])
    assert all(bool(each.error) == (each.size > capacity) for each in answer.tries)


def models_whose_ranks_meet_are_refused(rank: int) -> None:
    model = nn.Linear(4, 4)
    model.weight = nn.Parameter(distribute_tensor(model.weight.detach(), DeviceMesh("cpu", [0, 1])))
    with pytest.raises(UsageError, match="DTensor"):
        step_of(model)
    with pytest.raises(UsageError, match="SyncBatchNorm"):
        step_of(nn.Sequential(nn.SyncBatchNorm(4)))


def flags(rank: int) -> None:
    ranks = Ranks(dist.group.WORLD)
    assert (ranks.any(rank == 1), ranks.any(False), ranks.all(rank == 1), ranks.all(True)) == (True, False, False, True)
    assert ranks.minimum((rank, -rank, 1 << 62)) == (0, -1, 1 << 62)
    assert ranks.count == WORLD


def a_rank_that_does_not_come(rank: int) -> None:
    ranks = Ranks(dist.group.WORLD, timeout=0.5)
    if rank == 0:
        began = time.monotonic()
        with pytest.raises(MemplanError, match=r"rank 0 of 2 could not agree with the others within 0\.5 s") as caught:
            ranks.any(True)
        assert time.monotonic() - began < 20
        assert "another rank" in str(caught.value)
    dist.barrier()


CASES = (
    flags,
    one_rank_alone_runs_out,
    batches_of_different_sizes,
    sizes_that_differ_at_first_are_made_the_same,
    nobody_can_go_on,
    a_weight_that_one_rank_uses,
    batch_norms_run_on_their_own,
    the_batch_that_all_can_take,
    models_whose_ranks_meet_are_refused,
    a_rank_that_does_not_come,  # Last: its group is not usable afterwards.
)


def cases_done(rank: int, _: int) -> list[str]:
    done = []
    for case in CASES:
        case(rank)
        dist.barrier()
        done.append(case.__name__)
    return done


@pytest.mark.slow
def test_two_processes(tmp_path: Path) -> None:
    assert real_ranks(cases_done, WORLD, tmp_path) == [[case.__name__ for case in CASES]] * WORLD


def test_one_process_agrees_with_itself() -> None:
    ranks = Ranks()
    assert (ranks.count, ranks.minimum((3, 4)), ranks.any(False), ranks.all(True)) == (1, (3, 4), False, True)
    assert Ranks.of(nn.Linear(1, 1)).count == 1
