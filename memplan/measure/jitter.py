"""How far the reserved peak moves when one more block is in the way: what the order of allocations leaves open.

A run holds blocks that no trace has (a logger's tensor, a loaded checkpoint, a profiler), and with several CUDA streams
small changes of order decide which segment serves which request. So the stream is replayed with one such block of
several sizes, which stays, and what the block itself takes is taken off again.
"""

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Final, NamedTuple

from memplan.replay.records import MemoryProfile, RepeatedTurn, Request
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
    at_once: tuple[RequestStream, MemoryProfile] | None = None,
) -> Jitter:
    """The band of a stream; none where a single CUDA stream leaves the order no choice.

    Args:
        stream: What was played.
        memory: What came of it.
        play: Plays another stream while its peak grows: a band of three sizes is no more certain than that.
        at_once: The same requests, with frees of blocks that streams share as early as they can be, and what came of
            them; None where no streams share any.
    """
    several = len({request.stream for request in (*stream.prefix, *stream.step)}) > 1
    # When shared blocks come back is another choice of the order.
    orders = [(stream, memory), *([] if at_once is None else [at_once])]
    peaks: list[int] = [profile.peak_reserved for _, profile in orders]
    for each, _ in orders if several else orders[1:]:
        peaks += [play(_beside(each, size)).peak_reserved - size for size in EXTRA]
    return Jitter(below=Bytes(memory.peak_reserved - min(peaks)), above=Bytes(max(peaks) - memory.peak_reserved))


def _beside(stream: RequestStream, nbytes: int) -> RequestStream:
    """The stream with a block that comes in the middle of all before its last step, and stays."""
    block = Request("alloc", _KEY, nbytes, 0)
    size = len(stream.prefix)
    turns = [turn for turn in stream.turns if turn.end <= size]
    at = (size + sum(map(_left_out, turns))) // 2
    for turn in turns:
        if at <= turn.first:
            break
        if at < turn.end + _left_out(turn):
            return _replaced(stream, turn.first, turn.end, _around(stream, turn, at - turn.first, block))
        at -= _left_out(turn)
    return _replaced(stream, at, at, [((block,), None)])


_Part = tuple[Sequence[Request], RepeatedTurn | None]
"""Requests, and what they stand for."""


def _left_out(turn: RepeatedTurn) -> int:
    """Requests that a turn stands for beside its own."""
    return turn.further * (turn.end - turn.first)


def _around(stream: RequestStream, turn: RepeatedTurn, at: int, block: Request) -> list[_Part]:
    """The turns before the one in which the block comes, that one, and those after it."""
    requests = stream.prefix[turn.first : turn.end]
    passed, within = divmod(at, len(requests))
    with_block = (*requests[:within], block, *requests[within:])
    parts: list[_Part] = []
    for count, row in ((passed, requests), (1, with_block), (turn.further - passed, requests)):
        if count:
            parts.append((row, turn._replace(further=count - 1, continues=bool(parts))))
    return parts


def _replaced(stream: RequestStream, first: int, end: int, parts: Sequence[_Part]) -> RequestStream:
    """The stream with other requests in the place of some of its prefix."""
    made: list[Request] = []
    turns = [turn for turn in stream.turns if turn.end <= first]
    for requests, turn in parts:
        begun = first + len(made)
        made += requests
        if turn is not None:
            turns.append(turn._replace(first=begun, end=first + len(made)))
    longer = len(made) - (end - first)
    turns += [
        turn._replace(first=turn.first + longer, end=turn.end + longer) for turn in stream.turns if turn.first >= end
    ]
    return replace(stream, prefix=(*stream.prefix[:first], *made, *stream.prefix[end:]), turns=tuple(turns))
