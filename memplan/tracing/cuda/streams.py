"""CUDA streams as a trace needs them: which one is current decides from which pool the allocator serves.

Nothing runs, and waiting changes no pool: a block goes back to its own stream's at the moment of its free. Only one
that another stream was recorded to use (``record_stream``) may be held back, until the host waits for an event or a
stream, or is told that it is over. Streams are taken to go forward together, in the order of the host's calls: who
waits for one waits for all that the device was given before.
"""

import contextlib
from collections.abc import Iterator
from typing import Any, Protocol, Self

import torch

POOL_STREAMS = 32
"""Streams that torch makes for each priority and then hands out again (c10/cuda/CUDAStream.cpp kStreamsPerPool)."""


class StreamLedger(Protocol):
    """Who writes down what concerns streams."""

    stream: int
    """Number of the stream that allocations are made on."""

    def record_stream(self, storage: torch.UntypedStorage, stream: int) -> None:
        """A stream uses this storage, too."""

    def moment(self) -> int:
        """Return what ``wait`` needs to know of now."""

    def wait(self, moment: int | None = None) -> None:
        """The host waits for what the device was given before a moment, or until now."""


class _NoLedger:
    """Nothing is traced yet: nobody writes anything down."""

    stream = 0

    def record_stream(self, storage: torch.UntypedStorage, stream: int) -> None:
        pass

    def moment(self) -> int:
        return 0

    def wait(self, moment: int | None = None) -> None:
        pass


class Streams:
    """The streams of one trace."""

    def __init__(self) -> None:
        self.ledger: StreamLedger = _NoLedger()
        """Set by the recorder before anything is traced."""
        self.default = Stream(_number=0, _streams=self)
        """Where everything goes that is not sent elsewhere."""
        self.current = self.default
        """Where work goes now."""
        self._made: dict[int, int] = {}
        self.kind: type[Stream] = type("Stream", (Stream,), {"_streams": self})
        """What stands for ``torch.cuda.Stream``."""
        self.event: type[CudaEvent] = type("Event", (CudaEvent,), {"_streams": self})
        """What stands for ``torch.cuda.Event``."""

    def number(self, priority: int) -> int:
        """The number of a stream that is asked for: each priority has a pool, which is handed out in turns."""
        made = self._made.get(priority, 0)
        self._made[priority] = made + 1
        pools = list(self._made)
        return 1 + pools.index(priority) * POOL_STREAMS + made % POOL_STREAMS

    def switch(self, stream: "Stream | None") -> None:
        """Send what follows to a stream (``torch.cuda.set_stream``)."""
        if stream is not None:
            self.current = stream
            self.ledger.stream = stream.number

    def record(self, tensor: torch.Tensor, stream: "Stream") -> None:
        """Note that a stream uses a tensor, too (``torch.Tensor.record_stream``)."""
        self.ledger.record_stream(tensor.untyped_storage(), stream.number)

    def synchronize(self, *_: object, **__: object) -> None:
        """Let the host wait for all that the device was given (``torch.cuda.synchronize``)."""
        self.ledger.wait()

    @contextlib.contextmanager
    def on(self, stream: "Stream | None" = None) -> Iterator["Stream | None"]:
        """Send what runs inside to a stream (``torch.cuda.stream``); None changes nothing."""
        former = self.current
        self.switch(stream)
        try:
            yield stream
        finally:
            self.switch(former)


class Stream:
    """A stand-in for ``torch.cuda.Stream``."""

    device = torch.device("cuda", 0)
    device_index = 0
    device_type = 1  # c10/core/DeviceType.h
    _streams: Streams

    def __init__(
        self, *_: object, priority: int = 0, _number: int | None = None, _streams: Streams | None = None, **__: object
    ) -> None:
        if _streams is not None:
            self._streams = _streams
        self.priority = priority
        self.number = self._streams.number(priority) if _number is None else _number
        """0 is the default stream."""
        self._former: list[Stream] = []

    @property
    def cuda_stream(self) -> int:
        """The handle."""
        return self.number

    @property
    def stream_id(self) -> int:
        """Its number, under the name of ``torch.Stream``."""
        return self.number

    def __eq__(self, other: object) -> bool:
        """Streams of one number are the same one."""
        return isinstance(other, Stream) and other.number == self.number

    def __hash__(self) -> int:
        """As equality says."""
        return hash(self.number)

    def __enter__(self) -> Self:
        self._former.append(self._streams.current)
        self._streams.switch(self)
        return self

    def __exit__(self, *_: object) -> None:
        self._streams.switch(self._former.pop())

    def is_capturing(self) -> bool:
        """No CUDA graph is being captured."""
        return False

    def wait_stream(self, stream: object) -> None:
        """Nothing runs."""

    def wait_event(self, event: object) -> None:
        """Nothing runs."""

    def synchronize(self) -> None:
        """Let the host wait for it."""
        self._streams.synchronize()

    def query(self) -> bool:
        """All work is done: who is told so has waited."""
        self._streams.synchronize()
        return True

    def record_event(self, event: "CudaEvent | None" = None) -> "CudaEvent":
        """The event, or a new one."""
        return (event or self._streams.event()).record(self)


class CudaEvent:
    """A stand-in for ``torch.cuda.Event``."""

    _streams: Streams

    def __init__(self, *_: object, **__: object) -> None:
        self._moment = 0

    def record(self, stream: object = None) -> Self:
        """Keep this moment. Returned, as ``torch.Event`` of some devices does, for whoever chains the call."""
        del stream
        self._moment = self._streams.ledger.moment()
        return self

    def wait(self, stream: object = None) -> None:
        """Nothing runs."""

    def synchronize(self) -> None:
        """Let the host wait for what the device was given before it."""
        self._streams.ledger.wait(self._moment)

    def query(self) -> bool:
        """All work before it is done: who is told so has waited."""
        self._streams.ledger.wait(self._moment)
        return True

    def elapsed_time(self, end_event: object) -> float:
        """No time passes."""
        del end_event
        return 0.0


def answers(streams: Streams) -> dict[str, Any]:
    """What ``torch.cuda`` says and does about streams, by name."""
    return {
        "Stream": streams.kind,
        "Event": streams.event,
        "stream": streams.on,
        "set_stream": streams.switch,
        "current_stream": lambda *_, **__: streams.current,
        "default_stream": lambda *_, **__: streams.default,
    }
