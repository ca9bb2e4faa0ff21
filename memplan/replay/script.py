"""A stream played a known number of times: what each event belongs to, and how it is played to observers."""

from collections.abc import Sequence

from memplan.lifetime.records import Lifetimes
from memplan.replay.allocator import Allocator
from memplan.replay.observer import Observer
from memplan.replay.play import Player
from memplan.replay.records import MemoryProfile
from memplan.replay.stream import RequestStream
from memplan.tracing.records import Event


class ReplayScript:
    """A stream's prefix once, then its last step so many times."""

    def __init__(self, lifetimes: Lifetimes, stream: RequestStream, repetitions: int) -> None:
        self.lifetimes = lifetimes
        """The trace."""
        self.repetitions = repetitions if stream.step else 0
        """How often the last step is played."""
        self.length = len(stream.prefix) + self.repetitions * len(stream.step)
        """Number of events."""
        self._stream = stream
        self._sources = [event for event in lifetimes.trace.events if event.storage in lifetimes.buffers]

    def source(self, index: int) -> tuple[Event, int]:
        """The event of the trace that an event comes from, and which repetition of the last step it is in, from 0."""
        first = len(self._stream.prefix)
        if index < first:
            return self._sources[index], 0
        repetition, place = divmod(index - first, len(self._stream.step))
        return self._sources[first + place], repetition

    @property
    def first_op(self) -> int:
        """Op at which the last step begins; 0 where none is played."""
        first = len(self._stream.prefix)
        return self._sources[first].op if self.repetitions else 0

    def play(self, allocator: Allocator, observers: Sequence[Observer]) -> Player:
        """Play all of it, or up to where the device is full."""
        stream, player = self._stream, Player(allocator, observers)
        if player.play(stream.prefix):
            for _ in range(self.repetitions):
                if not player.play(stream.step):
                    break
                player.rename(stream.rename)
        return player


def repetitions_to_peak(stream: RequestStream, memory: MemoryProfile) -> int:
    """How often the last step must be played until a replay's peaks are reached; at least once."""
    latest = max(memory.peak_allocated_at, memory.peak_at)
    return 1 + max(0, latest - len(stream.prefix)) // len(stream.step) if stream.step else 1
