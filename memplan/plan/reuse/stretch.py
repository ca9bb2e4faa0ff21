"""From a stretch of allocations to a placement problem: what comes and goes within it shares one arena.

A training step is played again and again, so that its arena must close: a buffer that an earlier step left and this one
frees (a loss, an output) comes back as its heir before this one ends. Both are one buffer with a gap between them.
"""

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from memplan.plan.reuse.records import Buffer, Problem
from memplan.replay.policy import MIN_BLOCK
from memplan.replay.records import Request
from memplan.units import Bytes

ALIGNMENT = MIN_BLOCK
"""Of places on a GPU: that of the caching allocator's blocks, which kernels are used to."""
CPU_ALIGNMENT = 64
"""Of CPU tensors (c10/core/alignment.h: ``gAlignment``)."""
BEFORE = -1
"""Birth of what is alive when the stretch begins."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Stretch:
    """A stretch of allocations as a problem, and what the problem leaves out."""

    problem: Problem
    """What comes or goes within the stretch, on its busiest CUDA stream; moments are indices of requests."""
    keys: tuple[int, ...]
    """Per buffer of the problem, the key of its requests."""
    persistent_bytes: Bytes
    """Alive all through: parameters, optimizer state."""
    outside_bytes: Bytes
    """Most bytes alive at once of other CUDA streams: the end of one stream's buffer is not ordered against the begin
    of another's, so that they cannot share."""
    total_bytes: Bytes
    """Sum of all buffers of the problem: the memory without any reuse."""


@dataclass(slots=True)
class _Life:
    size: int
    stream: int
    start: int = BEFORE
    end: int | None = None


def stretch_of(
    before: Iterable[Request],
    requests: Sequence[Request],
    *,
    heirs: Mapping[int, int] | None = None,
    alignment: int,
    capacity: int | None = None,
) -> Stretch:
    """Make a placement problem of a stretch of requests.

    Args:
        before: The requests that lead there; what they leave alive lives on into the stretch.
        requests: The stretch.
        heirs: Key that the stretch frees but did not allocate → the key in its place one repetition later; none if the
            stretch is not repeated.
        alignment: Sizes are rounded up to multiples of this, so that offsets are such, too.
        capacity: Bytes that the arena may have.
    """
    lives = _lives(before, requests, alignment)
    moments = len(requests)
    gaps: dict[int, tuple[tuple[int, int], ...]] = {}
    for old, new in (heirs or {}).items():
        _join(lives, gaps, old, new, moments)
    streams: dict[int, int] = defaultdict(int)
    passing = {key: life for key, life in lives.items() if life.start != BEFORE or life.end is not None or key in gaps}
    for life in passing.values():
        streams[life.stream] += life.size
    busiest = max(streams, key=lambda stream: streams[stream], default=0)
    planned = {key: life for key, life in passing.items() if life.stream == busiest}
    buffers = tuple(
        Buffer(
            name=str(key),
            start=max(0, life.start),
            end=moments if life.end is None else life.end,
            size=life.size,
            gaps=gaps.get(key, ()),
        )
        for key, life in planned.items()
    )
    return Stretch(
        problem=Problem(buffers=buffers, capacity=capacity),
        keys=tuple(planned),
        persistent_bytes=Bytes(sum(life.size for key, life in lives.items() if key not in passing)),
        outside_bytes=Bytes(_most([life for key, life in passing.items() if key not in planned], moments)),
        total_bytes=Bytes(sum(buffer.size for buffer in buffers)),
    )


def _lives(before: Iterable[Request], requests: Sequence[Request], alignment: int) -> dict[int, _Life]:
    """Lifespans by key, of what is alive at some moment of the stretch; empty ones and those of no bytes left out."""
    lives: dict[int, _Life] = {}
    for request in before:
        if request.action == "alloc":
            lives[request.key] = _Life(_rounded(request.nbytes, alignment), request.stream)
        elif request.action == "free":
            del lives[request.key]
    for moment, request in enumerate(requests):
        if request.action == "alloc":
            lives[request.key] = _Life(_rounded(request.nbytes, alignment), request.stream, moment)
        elif request.action == "free":
            lives[request.key].end = moment
    return {key: life for key, life in lives.items() if life.size and life.end != life.start}


def _rounded(nbytes: int, alignment: int) -> int:
    return -(-nbytes // alignment) * alignment


def _join(lives: dict[int, _Life], gaps: dict[int, tuple[tuple[int, int], ...]], old: int, new: int, end: int) -> None:
    """Make one buffer of what the stretch frees and what it leaves in its place."""
    if old not in lives or new not in lives:
        return
    left, came = lives[old], lives[new]
    freed = end if left.end is None else left.end
    left.end = came.end = None
    if came.start > freed:
        gaps[old] = ((freed, came.start),)
        del lives[new]
    elif came.start < freed:
        # Both are alive at once, so that they take turns in two places: each is somebody's all the time.
        came.start = BEFORE
    else:
        del lives[new]


def _most(lives: Sequence[_Life], moments: int) -> int:
    changes: dict[int, int] = defaultdict(int)
    for life in lives:
        changes[max(0, life.start)] += life.size
        changes[moments if life.end is None else life.end] -= life.size
    alive = most = 0
    for moment in sorted(changes):
        alive += changes[moment]
        most = max(most, alive)
    return most
