"""The one loop that plays requests to an allocator: it keeps the peaks, and tells observers what happens.

``rename`` says which allocation takes whose place once a step is over; ``memplan.replay.replay`` has a picture.
"""

import dataclasses
from collections.abc import Iterable, Mapping, Sequence

from memplan.errors import MemplanError
from memplan.replay.allocator import Allocator, StreamAllocator
from memplan.replay.blocks import Block
from memplan.replay.observer import Observer
from memplan.replay.records import MemoryProfile, OutOfMemory, RepeatedTurn, Request, RequestAction
from memplan.units import Bytes

SAME_LEVEL = 1.01
"""Up to this ratio two reserved figures are one level where the moment of the peak is chosen. Chosen: the segment that
a step of some GiB gains late is one of 2 or 20 MiB."""


class Player:
    """One allocator to which requests are played."""

    def __init__(
        self, allocator: Allocator, observers: Sequence[Observer] = (), live: dict[int, Block] | None = None
    ) -> None:
        self.allocator = allocator
        allocator.observers = observers
        self.live = {} if live is None else live
        """Key → block."""
        self.played = 0
        """Events so far."""
        self.out_of_memory: OutOfMemory | None = None
        """The last request that could not be served."""
        self._streams = allocator if isinstance(allocator, StreamAllocator) else None
        self._shared = False
        # Bound once, and only where there is somebody to tell.
        self._on_alloc = [each.alloc for each in observers if type(each).alloc is not Observer.alloc]
        self._on_free = [each.free for each in observers if type(each).free is not Observer.free]
        self.forget_peaks()

    def forget_peaks(self) -> None:
        """Let peaks begin with the state that the allocator is in now."""
        self.peak_requested, self.peak_allocated = self.allocator.requested, self.allocator.allocated
        self.peak_reserved, self.peak_active = self.allocator.reserved, self.allocator.allocated + self.pending
        self.requested_at_peak, self.allocated_at_peak = self.peak_requested, self.peak_allocated
        self.pending_at_peak, self._reserved_then = self.pending, self.peak_reserved
        self.peak_allocated_at = self.peak_at = -1

    @property
    def pending(self) -> int:
        """Bytes in freed blocks that wait for another stream."""
        return self._streams.pending if self._streams is not None else 0

    def play(self, requests: Iterable[tuple[RequestAction, int, int, int]]) -> bool:  # noqa: C901, PLR0912 - inlined
        """Play a stretch of what ``Request`` says, up to its end or the first request that cannot be served.

        Returns:
            False if it ended early; ``out_of_memory`` then says why. An iterator can be played on.

        Raises:
            MemplanError: A request names what is not alive.
        """
        # This loop is what a replay spends its time in, so names are local and peaks are kept inline.
        allocator, live, told, freed_told = self.allocator, self.live, self._on_alloc, self._on_free
        allocate, free = allocator.allocate, allocator.free
        requested_peak, allocated_peak = self.peak_requested, self.peak_allocated
        reserved_peak, allocated_at_peak = self.peak_reserved, self.allocated_at_peak
        index = self.played - 1
        for index, (action, key, nbytes, stream) in enumerate(requests, self.played):
            if action == "free":
                block = live.pop(key, None)
                if block is None:
                    raise _not_alive(index, key)
                free(block)
                if freed_told:
                    for tell in freed_told:
                        tell(index, key, block)
                continue
            if action != "alloc":
                self._perform(index, Request(action, key, nbytes, stream))
                continue
            block = allocate(nbytes, stream)
            if block is None:
                return self._fail(index)
            live[key] = block
            if told:
                for tell in told:
                    tell(index, key, block)
            allocated, reserved = allocator.allocated, allocator.reserved
            if allocated > allocated_peak:
                allocated_peak = self.peak_allocated = allocated
                self.peak_allocated_at = index
            if allocator.requested > requested_peak:
                requested_peak = self.peak_requested = allocator.requested
            if reserved > reserved_peak:
                reserved_peak = self.peak_reserved = reserved
                # A last small segment, late in a step, does not make a moment the peak at which little is alive.
                moves = allocated > allocated_at_peak or reserved > SAME_LEVEL * self._reserved_then
            else:
                moves = reserved == reserved_peak and allocated > allocated_at_peak
            if moves:
                self._reserved_then = reserved
                allocated_at_peak = self.allocated_at_peak = allocated
                self.peak_at, self.requested_at_peak = index, allocator.requested
                self.pending_at_peak = self.pending
            if self._shared:
                self.peak_active = max(self.peak_active, allocated + self.pending)
        self.played = index + 1
        return True

    def play_with_turns(self, requests: Sequence[Request], turns: Iterable[RepeatedTurn]) -> bool:
        """Play a stretch likewise, and every turn in it as often as it stands for."""
        done = 0
        for turn in turns:
            if turn.continues:
                self._call_as_before(turn)
            if not (self.play(requests[done : turn.first]) and self._go_around(requests[turn.first : turn.end], turn)):
                return False
            done = turn.end
        return self.play(requests[done:])

    def _go_around(self, requests: Sequence[Request], turn: RepeatedTurn) -> bool:
        """Play a turn and those like it, up to where the allocator is in a state again: from there all goes on so."""
        begun, left = self.played, turn.further
        seen: dict[object, int] = {}
        period, state = 0, None
        while True:
            # Reports speak of the turn that was traced.
            self.played = begun
            if not self.play(requests):
                return False
            if state is None:
                # The whole state takes long to write down: only where what the turn leaves lies where it lay once.
                period = seen.setdefault(self._left_by(turn), left) - left
                due, state = left - period, self._state() if period else None
            elif left == due and period:
                again, state, seen = self._state() == state, None, {}
                left, period = (left % period, 0) if again else (left, period)
            if not left:
                return True
            self._call_as_before(turn)
            left -= 1

    def _left_by(self, turn: RepeatedTurn) -> tuple[object, ...]:
        """Where that lies which a turn leaves, and how much there is in all."""
        live = self.live
        keys = range(turn.first_key, turn.first_key + turn.keys)
        return tuple((key, live[key].address) for key in keys if key in live), self.allocator.reserved

    def _call_as_before(self, turn: RepeatedTurn) -> None:
        """Call what lives after a turn by the key of what was in its place when the turn began."""
        for key in range(turn.first_key - turn.keys, turn.first_key + turn.keys):
            if key in self.live:
                self.live[key - turn.keys] = self.live.pop(key)

    def _state(self) -> tuple[object, ...]:
        """What decides the future."""
        return self.allocator.fingerprint(self.live), self.allocator.reserved, self.allocator.retries, self.pending

    def rename(self, rename: Mapping[int, int]) -> None:
        """Let every key stand for what its successor stood for."""
        moved = {old: self.live[new] for old, new in rename.items()}
        for new in rename.values():
            del self.live[new]
        self.live.update(moved)

    def profile(self, *, steps: int, settled: bool) -> MemoryProfile:
        """Peaks and state, after so many repetitions of a step."""
        return MemoryProfile(
            peak_requested=Bytes(self.peak_requested),
            peak_allocated=Bytes(self.peak_allocated),
            peak_reserved=Bytes(self.peak_reserved),
            peak_allocated_at=self.peak_allocated_at,
            peak_at=self.peak_at,
            allocated_at_peak=Bytes(self.allocated_at_peak),
            requested_at_peak=Bytes(self.requested_at_peak),
            end_reserved=Bytes(self.allocator.reserved),
            steps_replayed=steps,
            segments=self.allocator.segments,
            settled=settled,
            retries=self.allocator.retries,
            out_of_memory=self.out_of_memory,
            pending_at_peak=Bytes(self.pending_at_peak),
            # Before the first request about streams both are the same.
            peak_active=Bytes(max(self.peak_active, self.peak_allocated)),
        )

    def _perform(self, index: int, request: Request) -> None:
        named = request.action == "record_stream"
        block = self.live.get(request.key) if named else None
        if named and block is None:
            raise _not_alive(index, request.key)
        self._shared = True
        if self._streams is not None:
            self._streams.perform(request, block)

    def _fail(self, index: int) -> bool:
        self.played = index + 1
        if self.allocator.failure is not None:
            self.out_of_memory = dataclasses.replace(self.allocator.failure, event=index)
        return False


def _not_alive(index: int, key: int) -> MemplanError:
    return MemplanError(f"event {index} names allocation {key}, which is not alive")
