"""From a stretch of allocations to a placement problem: what comes and goes within it shares one arena.

A training step is played again and again, so that its arena must close: a buffer that an earlier step left and this one
frees (a loss, an output) comes back as its heir before this one ends. Both are one buffer with a gap between them. An
heir that is born before its ancestor goes takes turns with it in two places; the plan is then of two steps in a row.
"""

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from memplan.plan.reuse.records import ArenaBuffer, Problem
from memplan.replay.policy import MIN_BLOCK
from memplan.replay.records import Request
from memplan.units import Bytes

ALIGNMENT = MIN_BLOCK
"""Of places on a GPU: that of the caching allocator's blocks, which kernels are used to."""
BEFORE = -1
"""Birth of what is alive when the stretch begins."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RequestStretch:
    """A stretch of allocations as a problem, and what the problem leaves out."""

    problem: Problem
    """What comes or goes within the stretch, on its busiest CUDA stream; moments are indices of requests."""
    keys: tuple[int, ...]
    """Per buffer of the problem, the key of its requests."""
    repetitions: int
    """How many times in a row the stretch is planned."""
    persistent_bytes: Bytes
    """Alive all through: parameters, optimizer state."""
    outside_bytes: Bytes
    """Most bytes alive at once of other CUDA streams: the end of one stream's buffer is not ordered against the begin
    of another's, so that they cannot share."""


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
) -> RequestStretch:
    """Make a placement problem of a stretch of requests.

    Args:
        before: The requests that lead there; what they leave alive lives on into the stretch.
        requests: The stretch.
        heirs: Key that the stretch frees but did not allocate → the key in its place one repetition later; none if the
            stretch is not repeated.
        alignment: Sizes are rounded up to multiples of this, so that offsets are such, too.
        capacity: Bytes that the arena may have.
    """
    repetitions = _repetitions(requests, heirs or {})
    unrolled = _Unrolled(requests, heirs or {})
    played = [unrolled.request(request, turn) for turn in range(repetitions) for request in requests]
    lives = _lives(before, played, alignment)
    moments = len(played)
    gaps: dict[int, tuple[tuple[int, int], ...]] = {}
    for old in heirs or {}:
        _join(lives, gaps, old, unrolled.key(old, repetitions), moments)
    streams: dict[int, int] = defaultdict(int)
    passing = {key: life for key, life in lives.items() if life.start != BEFORE or life.end is not None or key in gaps}
    for life in passing.values():
        streams[life.stream] += life.size
    busiest = max(streams, key=lambda stream: streams[stream], default=0)
    planned = {key: life for key, life in passing.items() if life.stream == busiest}
    buffers = tuple(
        ArenaBuffer(
            name=str(key),
            start=max(0, life.start),
            end=moments if life.end is None else life.end,
            size=life.size,
            gaps=gaps.get(key, ()),
        )
        for key, life in planned.items()
    )
    return RequestStretch(
        problem=Problem(buffers=buffers, capacity=capacity),
        keys=tuple(unrolled.original(key) for key in planned),
        repetitions=repetitions,
        persistent_bytes=Bytes(sum(life.size for key, life in lives.items() if key not in passing)),
        outside_bytes=Bytes(_most([life for key, life in passing.items() if key not in planned], moments)),
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


class _Unrolled:
    """Names for a stretch that is played several times in a row."""

    def __init__(self, requests: Sequence[Request], heirs: Mapping[int, int]) -> None:
        self._heirs = heirs
        self._born = {request.key for request in requests if request.action == "alloc"}
        self._stride = 1 + max((request.key for request in requests), default=0)

    def key(self, key: int, turn: int) -> int:
        """Return the key that stands for one of the first turn in another turn."""
        while turn and key in self._heirs and key not in self._born:
            key, turn = self._heirs[key], turn - 1
        return key + turn * self._stride if key in self._born else key

    def request(self, request: Request, turn: int) -> Request:
        """A request of the first turn, in another one."""
        return request._replace(key=self.key(request.key, turn))

    def original(self, key: int) -> int:
        """The key in the first turn of what was born in any."""
        return key % self._stride if key % self._stride in self._born else key


def _repetitions(requests: Sequence[Request], heirs: Mapping[int, int]) -> int:
    """Turns after which everybody's place is free before it is taken again."""
    births = {request.key: moment for moment, request in enumerate(requests) if request.action == "alloc"}
    frees = {request.key: moment for moment, request in enumerate(requests) if request.action == "free"}
    most = 1
    for old in heirs:
        turns, key = 1, heirs[old]
        while key not in births and key in heirs:
            turns, key = turns + 1, heirs[key]
        most = max(most, turns + (births.get(key, 0) < frees.get(old, 0)))
    return most


def _join(lives: dict[int, _Life], gaps: dict[int, tuple[tuple[int, int], ...]], old: int, new: int, end: int) -> None:
    """Make one buffer of what the stretch frees and what it leaves in its place."""
    if old not in lives or new not in lives:
        return
    left, came = lives[old], lives.pop(new)
    freed = end if left.end is None else left.end
    left.end = None
    if came.start > freed:
        gaps[old] = ((freed, came.start),)


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
