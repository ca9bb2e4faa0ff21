"""How far the reserved peak moves when one more block is in the way: what the order of allocations leaves open.

A run holds blocks that no trace has (a logger's tensor, a loaded checkpoint, a profiler), and with several CUDA streams
small changes of order decide which segment serves which request. So the stream is replayed with one such block of
several sizes, which stays, and what the block itself takes is taken off again.
"""

from collections.abc import Callable
from dataclasses import replace
from typing import Final, NamedTuple

from memplan.replay.records import MemoryProfile, Request
from memplan.replay.stream import RequestStream
from memplan.units import MIB, Bytes

EXTRA: Final = (MIB, 8 * MIB, 64 * MIB)
"""Sizes of the block: one for each kind of segment that the allocator makes (``memplan.replay.policy``)."""
_KEY: Final = -1
"""No storage has it."""


class Jitter(NamedTuple):
    """Bytes by which the reserved peak may be off, both at least 0."""

    below: Bytes = Bytes(0)
    above: Bytes = Bytes(0)


NO_JITTER: Final = Jitter()
"""Of a stream whose order has no choice."""


def jitter(
    stream: RequestStream,
    memory: MemoryProfile,
    play: Callable[[RequestStream], MemoryProfile],
    late: RequestStream | None = None,
) -> Jitter:
    """The band of a stream; none where a single CUDA stream leaves the order no choice.

    ``late`` has the same requests, with frees of blocks that streams share as late as they can be.
    """
    if len({request.stream for request in (*stream.prefix, *stream.step)}) < 2:
        return NO_JITTER
    moved = [play(_beside(stream, size)).peak_reserved - size - memory.peak_reserved for size in EXTRA]
    if late is not None:
        moved.append(play(late).peak_reserved - memory.peak_reserved)
    return Jitter(below=Bytes(max(0, -min(moved))), above=Bytes(max(0, *moved)))


def _beside(stream: RequestStream, nbytes: int) -> RequestStream:
    """The stream with a block that comes in the middle of set-up and stays."""
    middle = len(stream.prefix) // 2
    block = Request("alloc", _KEY, nbytes, 0)
    turns = tuple(
        turn._replace(first=turn.first + (turn.first >= middle), end=turn.end + (turn.end > middle))
        for turn in stream.turns
    )
    return replace(stream, prefix=(*stream.prefix[:middle], block, *stream.prefix[middle:]), turns=turns)
