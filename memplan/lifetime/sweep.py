"""One pass over the events: live bytes over time, and the moment of the peak."""

from collections.abc import Iterator, Mapping

from memplan.lifetime.records import Buffer, Peak
from memplan.tracing.records import Op, Trace
from memplan.units import Bytes, OpIndex, StorageId

_NO_OP = Op(
    index=OpIndex(0),
    name="",
    phase="setup",
    module="",
    source="",
    flops=0,
    bytes_moved=Bytes(0),
    reads=(),
    writes=(),
)


def live_curve(trace: Trace, buffers: Mapping[StorageId, Buffer]) -> Iterator[Bytes]:
    """Requested device bytes alive after every event of the trace."""
    live = 0
    for event in trace.events:
        buffer = buffers.get(event.storage)
        if buffer is not None:
            live += buffer.nbytes if event.action == "alloc" else -buffer.nbytes
        yield Bytes(live)


def find_peak(trace: Trace, buffers: Mapping[StorageId, Buffer]) -> Peak:
    """The first moment of most live requested bytes over all traced steps."""
    peak, at = 0, -1
    for index, live in enumerate(live_curve(trace, buffers)):
        if live > peak:
            peak, at = live, index
    op = trace.ops[max(trace.events[at].op, 0)] if at >= 0 and trace.ops else _NO_OP
    in_setup = at >= 0 and trace.events[at].op < 0
    return Peak(
        nbytes=Bytes(peak),
        event=at,
        op=op.index,
        phase="setup" if in_setup else op.phase,
        op_name="" if in_setup else op.name,
        module=op.module,
        source=op.source,
        alive=alive_after(trace, buffers, at),
    )


def alive_after(trace: Trace, buffers: Mapping[StorageId, Buffer], event: int) -> tuple[StorageId, ...]:
    """Device storages alive after an event, in order of birth."""
    alive: dict[StorageId, None] = {}
    for action, storage, _ in trace.events[: event + 1]:
        if storage in buffers:
            if action == "alloc":
                alive[storage] = None
            else:
                del alive[storage]
    return tuple(alive)
