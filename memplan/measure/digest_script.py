"""What a digest plays: a stream's prefix once, its last step so many times, and which phase each event falls into."""

from collections.abc import Iterator
from itertools import chain, pairwise, repeat

from memplan.lifetime.records import Lifetimes
from memplan.measure.digest_records import Span
from memplan.replay.records import Request
from memplan.replay.stream import RequestStream
from memplan.tracing.records import Phase


class Script:
    """A stream, played.

    Args:
        lifetimes: The trace.
        stream: Its requests.
        repetitions: How often the last step is played, where it closes.
    """

    def __init__(self, lifetimes: Lifetimes, stream: RequestStream, repetitions: int) -> None:
        self._stream = stream
        self._trace = lifetimes.trace
        self._events = [event for event in lifetimes.trace.events if event.storage in lifetimes.buffers]
        self._repetitions = repetitions if stream.step else 0
        self.length = len(stream.prefix) + self._repetitions * len(stream.step)
        """Number of events."""

    def requests(self) -> Iterator[Request]:
        """All requests in order."""
        return chain(self._stream.prefix, *repeat(self._stream.step, self._repetitions))

    def step_ends(self, index: int) -> bool:
        """Is an event the last of a repetition?"""
        beyond = index + 1 - len(self._stream.prefix)
        return beyond > 0 and not beyond % len(self._stream.step)

    def spans(self, played: int) -> tuple[Span, ...]:
        """Runs of events of one phase and step, of the first ``played`` events."""
        moments = [self._moment(index) for index in range(played)]
        starts = [index for index in range(played) if not index or moments[index] != moments[index - 1]]
        return tuple(Span(*moments[start], start, end) for start, end in pairwise([*starts, played]))

    def _moment(self, index: int) -> tuple[Phase, int]:
        first = len(self._stream.prefix)
        repetition, place = divmod(index - first, len(self._stream.step)) if index >= first else (0, index - first)
        op = self._events[first + place].op
        ops, steps = self._trace.ops, self._trace.steps
        phase = ops[op].phase if 0 <= op < len(ops) else "setup"
        return phase, sum(step.first_op <= op for step in steps) + repetition
