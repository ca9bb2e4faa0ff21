"""One pass over the events: live bytes over time, and what is alive at a moment."""

from collections.abc import Iterator, Mapping

from memplan.lifetime.records import Buffer
from memplan.tracing.records import Trace
from memplan.units import Bytes, StorageId


def live_curve(trace: Trace, buffers: Mapping[StorageId, Buffer]) -> Iterator[Bytes]:
    """Requested device bytes alive after every event of the trace."""
    live = 0
    for event in trace.events:
        buffer = buffers.get(event.storage)
        if buffer is not None:
            live += buffer.nbytes if event.action == "alloc" else -buffer.nbytes
        yield Bytes(live)


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
