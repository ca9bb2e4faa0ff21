"""Traces of one rank of the small network, and what they hold."""

from collections.abc import Callable
from functools import cache
from typing import Any

from torch import nn

from memplan.job.parallel import parse_parallel
from memplan.tracing.records import DeviceTraits, Op, Role, Storage, Trace
from memplan.tracing.run import trace_job
from tests.tracing.jobs import source, spec
from tests.tracing.sharding.nets import Net, rows

GPU = DeviceTraits(kind="cuda")


@cache
def rank_of(
    parallel: str, *, rank: int = 0, model: Callable[[], nn.Module] = Net, batch: Any = rows, **options: Any
) -> Trace:
    job = spec(parallel=parse_parallel(parallel), **{"batch_size": 4} | options)
    return trace_job(lambda: source(model, batch), job, GPU, rank=rank)


def alive(trace: Trace, event: int | None = None) -> list[Storage]:
    """Storages alive after an event; at the end without one."""
    held: dict[int, Storage] = {}
    for each in trace.events if event is None else trace.events[: event + 1]:
        if each.action == "alloc":
            held[each.storage] = trace.storages[each.storage]
        else:
            del held[each.storage]
    return list(held.values())


def held(trace: Trace, role: Role, place: str = "device") -> int:
    """Bytes of a role alive at the end of a trace."""
    return sum(storage.nbytes for storage in alive(trace) if (storage.role, storage.place) == (role, place))


def before_optimizer(trace: Trace) -> list[Storage]:
    """Storages alive when the last step's optimizer begins."""
    first = next(op.index for op in trace.ops[trace.steps[-1].first_op :] if op.phase == "optimizer")
    return alive(trace, max(index for index, event in enumerate(trace.events) if event.op < first))


def born(trace: Trace, *, stream: int) -> list[tuple[Op, Storage]]:
    """Device storages of the last step that were made on a stream, with their ops."""
    first = trace.steps[-1].first_event
    made = [trace.storages[event.storage] for event in trace.events[first:] if event.action == "alloc"]
    return [(trace.ops[each.birth], each) for each in made if each.stream == stream and each.place == "device"]
