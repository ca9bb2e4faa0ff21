"""The world of one rank: its process group, its mesh, its streams, and how code of the user's meets them."""

import os

import pytest
import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.device_mesh import DeviceMesh, init_device_mesh
from torch.distributed.fsdp import fully_shard

from memplan.errors import EstimateError
from memplan.job.parallel import parse_parallel
from memplan.replay.stream import freed_late
from memplan.tracing.cuda.streams import POOL_STREAMS, Streams
from memplan.tracing.ledger import Ledger
from memplan.tracing.run import trace_job
from memplan.tracing.sharding.ranks import ranks_to_trace
from tests.tracing.jobs import source, spec
from tests.tracing.sharding.nets import Net, rows
from tests.tracing.sharding.toy import needs_recent_torch
from tests.tracing.sharding.traces import GPU, held, rank_of

told: dict[str, object] = {}


def model_that_joins() -> nn.Module:
    """As a script does under torchrun."""
    dist.init_process_group(backend="nccl")
    torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
    told["rank"], told["ranks"] = dist.get_rank(), dist.get_world_size()
    told["environment"] = os.environ["RANK"], os.environ["WORLD_SIZE"]
    group = dist.new_group([0, 1], backend="nccl")
    told["group"] = dist.get_world_size(group) if dist.get_rank() < 2 else None
    told["gathered"] = gathered = [None] * dist.get_world_size()
    dist.gather_object(dist.get_rank(), gathered, dst=1)
    dist.barrier()
    return Net()


def test_code_that_joins_a_process_group_finds_itself_in_it() -> None:
    job = spec(parallel=parse_parallel("ddp=4"), batch_size=2)
    trace_job(lambda: source(model_that_joins, rows), job, GPU, rank=1)
    assert told == {"rank": 1, "ranks": 4, "environment": ("1", "4"), "group": 2, "gathered": [1] * 4}
    assert not dist.is_initialized()
    assert "RANK" not in os.environ


@pytest.mark.parametrize("parallel", ["fsdp=2", "ddp=2", "fsdp1=2", pytest.param("tp=2", marks=needs_recent_torch)])
def test_collectives_draw_no_random_numbers(parallel: str) -> None:
    """Else a job would run twice more, to find out whether they decide anything, and what it draws would be others."""
    runs = []

    def model() -> nn.Module:
        runs.append(parallel)
        return Net()

    trace_job(lambda: source(model, rows), spec(parallel=parse_parallel(parallel), batch_size=2), GPU)
    assert len(runs) == 1


def test_a_failing_trace_leaves_no_group_behind() -> None:
    def failing() -> nn.Module:
        raise ValueError("no model today")

    with pytest.raises(EstimateError, match="no model today"):
        trace_job(lambda: source(failing, rows), spec(parallel=parse_parallel("fsdp=4")), GPU)
    assert not dist.is_initialized()


def test_the_targets_own_parallelize_stands_in_memplans_place() -> None:
    seen: list[DeviceMesh] = []

    def parallelize(model: nn.Module, mesh: DeviceMesh) -> None:
        seen.append(mesh)
        fully_shard(model, mesh=mesh["dp_shard"])

    job = spec(parallel=parse_parallel("fsdp=4"), batch_size=4)
    trace = trace_job(lambda: source(Net, rows, parallelize=parallelize), job, GPU)
    assert held(trace, "parameter") == held(rank_of("fsdp=4"), "parameter")
    assert seen[0].device_type == "cuda"
    # One unit: every parameter is gathered once, and kept until backward.
    assert not any("fully_shard" in sentence for sentence in trace.assumptions)


@pytest.mark.parametrize(
    ("parallel", "names", "sizes"),
    [
        ("fsdp=8", ("dp_shard",), (8,)),
        ("ddp=2", ("dp_replicate",), (2,)),
        ("hsdp=2x4", ("dp_replicate", "dp_shard"), (2, 4)),
        ("fsdp=1", ("dp_shard",), (1,)),
    ],
)
def test_the_mesh_has_a_dimension_for_each_degree(
    parallel: str, names: tuple[str, ...], sizes: tuple[int, ...]
) -> None:
    seen: list[tuple[tuple[str, ...] | None, tuple[int, ...], tuple[int, ...]]] = []

    def parallelize(_: nn.Module, mesh: DeviceMesh) -> None:
        own = init_device_mesh("cuda", (dist.get_world_size(),))
        seen.append((mesh.mesh_dim_names, tuple(mesh.shape), tuple(own.shape)))

    job = spec(parallel=parse_parallel(parallel), mode="inference")
    trace_job(lambda: source(Net, rows, parallelize=parallelize), job, GPU)
    total = 1
    for size in sizes:
        total *= size
    assert seen == [(names, sizes, (total,))]


def test_one_rank_of_each_stage_is_traced() -> None:
    assert ranks_to_trace(parse_parallel("fsdp=512")) == (0,)
    assert ranks_to_trace(parse_parallel("fsdp=4,tp=2,pp=3")) == (0, 8, 16)


def test_streams_come_from_pools_of_each_priority() -> None:
    streams = Streams()
    plain = [streams.kind() for _ in range(POOL_STREAMS + 1)]
    urgent = streams.kind(priority=-1)
    assert plain[0] == plain[POOL_STREAMS]
    assert len({each.number for each in (*plain, urgent, streams.default)}) == POOL_STREAMS + 2


def test_streams_nest_and_tell_who_is_current() -> None:
    streams = Streams()
    streams.ledger = Ledger()
    first, second = streams.kind(), streams.kind()
    with streams.on(first):
        assert streams.ledger.stream == first.number
        with second, streams.on(None):
            assert streams.current is second
            assert streams.ledger.stream == second.number
    assert streams.current is streams.default
    assert streams.ledger.stream == 0


class OnStreams(nn.Module):
    """Copies its input on a stream of its own."""

    def __init__(self) -> None:
        super().__init__()
        self.inner = nn.Linear(16, 4)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        side = torch.cuda.Stream()  # type: ignore[no-untyped-call]
        with torch.cuda.stream(side):
            copied = x.clone()
        torch.cuda.current_stream().wait_stream(side)
        copied.record_stream(torch.cuda.current_stream())
        out: torch.Tensor = self.inner(copied).sum()
        return out


def test_streams_of_the_users_own_are_recorded() -> None:
    trace = trace_job(lambda: source(OnStreams, rows), spec(batch_size=4), GPU)
    copies = {trace.storages[op.writes[0]].stream for op in trace.ops if op.name == "aten.clone.default"}
    assert copies == {1, 2}
    assert {storage.stream for storage in trace.storages} == {0, 1, 2}


@pytest.mark.parametrize("waits", ["", "synchronize", "event", "event query", "stream query"])
def test_a_shared_block_pends_until_the_host_waits_for_what_came_before_its_free(waits: str) -> None:
    class Shared(OnStreams):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            side = torch.cuda.Stream()  # type: ignore[no-untyped-call]
            early = torch.cuda.Event()  # type: ignore[no-untyped-call]
            early.record()  # type: ignore[no-untyped-call]
            with torch.cuda.stream(side):
                copied = x.clone()
            copied.record_stream(torch.cuda.current_stream())
            del copied
            late = torch.cuda.current_stream().record_event()
            x = x + 1
            early.synchronize()
            if waits == "synchronize":
                torch.cuda.synchronize()
            elif waits == "event":
                late.synchronize()
            elif waits == "event query":
                assert late.query()
            elif waits == "stream query":
                assert torch.cuda.current_stream().query()
            out: torch.Tensor = self.inner(x).sum()
            return out

    trace = trace_job(lambda: source(Shared, rows), spec(batch_size=4), GPU)
    shared = [storage for storage in trace.storages if storage.pending]
    assert len(shared) == len(trace.steps)
    late = freed_late(trace)
    assert late is not None
    for storage, step in zip(shared, trace.steps, strict=True):
        freed = trace.events.index(next(e for e in trace.events if e.storage == storage.id and e.action == "free"))
        assert (storage.pending == 1) if waits else (freed + storage.pending == step.end_event - 1)
        assert late.events.index(trace.events[freed]) == freed + storage.pending
    assert any("record_stream" in line for line in trace.assumptions)
