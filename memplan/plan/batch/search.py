"""The largest value of an option whose step fits: two traces, exact sizes, and traces at the answer and one more."""

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from itertools import count

from memplan.errors import EstimateError, MemplanError, UsageError
from memplan.lifetime.family import TraceFamily, differing, families
from memplan.measure.records import Verdict
from memplan.plan.batch.records import Ended
from memplan.tracing.records import Trace

MOST_TRACES = 10
"""Four do where sizes are polynomials; each more costs what an estimate costs."""
LARGEST = 1 << 24
"""Where a search begins to fall: no step has more samples or tokens."""
FARTHEST = 4
"""Times the largest traced value that a line through two peaks is followed, where the traces ran different ops."""
LEAP = 64
"""Times the largest traced value that is tried next where memory sets no bound: four leaps from 2 to ``LARGEST``."""
BISECTED = 3
"""Every so often a step of the search halves what is left."""


@dataclass(frozen=True, slots=True, kw_only=True)
class JudgedStep:
    """A step at one value."""

    device_bytes: int
    """Its device peak."""
    fits: bool
    """Does it fit?"""
    verdict: Verdict = Verdict.UNKNOWN
    """Of the whole device."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SearchEnd:
    """Where the search ended."""

    value: int
    """The largest that fits; 0 for none."""
    ended: Ended
    """How."""
    judged: Mapping[int, JudgedStep]
    """All that was traced."""
    beyond: JudgedStep | None
    """One more than the answer; None where the program refuses it."""
    refused: str
    """What it says then."""
    differing: int
    """Storages at the answer that were not foreseen."""
    traces: Mapping[int, Trace]
    """Value → trace, in the order in which they were made."""


class ValueSearch:
    """Traces and judges values until the largest that fits is known."""

    def __init__(
        self,
        trace: Callable[[int], Trace],
        judge: Callable[[int, Trace], JudgedStep],
        limit_bytes: int,
    ) -> None:
        """Search without a trace so far.

        Args:
            trace: Traces the step at a value.
            judge: Replays a trace, recorded or put together.
            limit_bytes: Near which peak the answer lies; what fits is for ``judge`` to say.
        """
        self._trace, self._judge, self._limit = trace, judge, limit_bytes
        self._judged: dict[int, JudgedStep] = {}
        self._promised: dict[int, JudgedStep] = {}
        self._traces: dict[int, Trace] = {}
        self._refused: dict[int, MemplanError] = {}
        self._differing: dict[int, int] = {}
        self._families: tuple[TraceFamily, ...] = ()

    def run(self, first: int) -> SearchEnd:
        """Find the largest value that fits.

        Args:
            first: Where to begin; twice that comes next. 1 is avoided: layouts of one sample are others.

        Raises:
            EstimateError, UsageError: The program refuses the first value, and 1 too.
        """
        first = max(2, first)
        if self._look(first):
            self._look(2 * first)
        elif not self._look(1):
            raise self._refused[first]
        # To find where refusals begin halves what is left, at most as often as ``LARGEST`` has halves.
        while len(self._traces) < MOST_TRACES + (LARGEST.bit_length() if self._refused else 0):
            guess = self._guess()
            if guess in self._refused:  # 1, where nothing that is larger fits.
                return self._found(0, "none")
            if guess not in self._traces:
                self._look(guess)
            elif not self._fitting:
                return self._found(0, "none")
            elif guess + 1 in self._refused:
                return self._found(guess, "refused")
            elif guess + 1 in self._traces:
                foreseen = not self._differing[guess] and not self._differing[guess + 1]
                return self._found(guess, "exact" if foreseen else "confirmed")
            else:
                self._look(guess + 1)
        return self._found(max(self._fitting, default=0), "limit")

    def at(self, value: int) -> JudgedStep:
        """Return the step at a value: traced, or as the nearest family of traces predicts it."""
        if value in self._judged:
            return self._judged[value]
        if value not in self._promised:
            self._promised[value] = self._judge(value, self._family_near(value).at(value))
        return self._promised[value]

    def first_beyond(self, value: int, usable: int, verdicts: Collection[Verdict]) -> int | None:
        """Return the first value beyond another that has one of some verdicts, taking them to stay once they came.

        Args:
            value: The largest that fits.
            usable: Bytes of the device: near this peak the search begins.
            verdicts: Those looked for.

        Returns:
            The value; None where none is found that traces foretell.
        """
        below, above, step = value, value + 1 + self._likely_distance(value, usable), 1
        while self.is_known(above) and self.at(above).verdict not in verdicts:
            below, above, step = above, min(above + step, LARGEST + 1), 2 * step
        if not self.is_known(above) or above > LARGEST:
            return None
        step = 1
        while above - step > below and self.at(above - step).verdict in verdicts:
            above, step = above - step, 2 * step
        below = max(below, above - step)
        while above - below > 1:
            middle = (below + above) // 2
            below, above = (below, middle) if self.at(middle).verdict in verdicts else (middle, above)
        return above

    def _likely_distance(self, value: int, usable: int) -> int:
        """How far beyond one more than a value a line through its peak and that of its half meets a size."""
        half, peak = max(1, value // 2), self.at(value + 1).device_bytes
        slope = (peak - self.at(half).device_bytes) / (value + 1 - half)
        return int(max(0, usable - peak) / slope) if slope > 0 else 0

    def is_traced(self, value: int) -> bool:
        """Was a value traced?"""
        return value in self._traces

    def is_known(self, value: int) -> bool:
        """Was it traced, or do other traces foretell it?"""
        foretold = any(len(family.traces) > 1 for family in self._families)
        return self.is_traced(value) or (foretold and value not in self._refused)

    def _found(self, value: int, ended: Ended) -> SearchEnd:
        return SearchEnd(
            value=value,
            ended=ended,
            judged=self._judged,
            beyond=None if value + 1 in self._refused else self.at(value + 1),
            refused=self._refused[value + 1].what if value + 1 in self._refused else "",
            differing=self._differing.get(value, 0),
            traces=self._traces,
        )

    @property
    def _fitting(self) -> list[int]:
        return [value for value, judged in self._judged.items() if judged.fits]

    def _look(self, value: int) -> bool:
        """Trace a value, judge it, and count what was not foreseen; False where the program refuses it."""
        try:
            truth = self._trace(value)
        except (EstimateError, UsageError) as error:
            self._refused[value] = error
            return False
        known = [family for family in self._families if len(family.traces) > 1]
        nearest = min(known, key=lambda family: _distance(family, value), default=None)
        self._differing[value] = len(truth.storages) if nearest is None else differing(nearest.at(value), truth)
        self._traces[value] = truth
        self._judged[value] = self._judge(value, truth)
        self._families = families(self._traces)
        self._promised.clear()
        return True

    def _family_near(self, value: int) -> TraceFamily:
        """The family to ask: one of several members rather than a nearer one that knows no slope."""
        return min(self._families, key=lambda family: (len(family.traces) == 1, _distance(family, value)))

    def _guess(self) -> int:
        """The largest value that should fit; where all that run should, one that tells where refusals begin."""
        below = max(self._fitting, default=0)
        wall = min((value for value in self._refused if value > below), default=LARGEST)
        above = min((value for value, judged in self._judged.items() if not judged.fits), default=LARGEST)
        if len(self._judged) == 1 and wall < LARGEST:
            return _likely_limit(below, min(above, wall))
        guess = self._largest_fitting(below, min(above, wall))
        return _likely_limit(below, wall) if guess + 1 == wall else guess

    def _largest_fitting(self, below: int, above: int) -> int:
        """By lines through what is known on both sides, until they meet."""
        known = {value: judged.device_bytes for value, judged in self._judged.items()}
        if all(len(family.traces) == 1 for family in self._families):
            # Nothing says how sizes follow from the value: only what was traced does.
            return (
                _next_value(known, below, min(above, FARTHEST * max(known)), self._limit)
                if above - below > 1
                else max(1, below)
            )
        if above == LARGEST and self.at(LARGEST).fits:
            if LARGEST in self._traces or self.at(LARGEST).device_bytes == known[max(known)]:
                raise UsageError("nothing in this step grows with what is searched", hint="leave the search out")
            # Memory sets no bound; perhaps the program does.
            return min(LARGEST, LEAP * max(known))
        for step in count(1):
            if above - below <= 1:
                break
            # Lines alone may creep where sizes rise in stairs.
            halves = step % BISECTED == 0 and above < LARGEST
            value = (below + above) // 2 if halves else _next_value(known, below, above, self._limit)
            judged = self.at(value)
            known[value] = judged.device_bytes
            below, above = (value, above) if judged.fits else (below, value)
        return max(1, below)


def _likely_limit(runs: int, refused: int) -> int:
    """The value between them to try: what programs take ends at a round number, most often at a power of two."""
    if refused - runs <= 1:
        return max(1, runs)
    if runs & (runs - 1) == 0 and refused <= 2 * runs:
        return runs + 1
    rounded = (refused - 1 >> bits << bits for bits in reversed(range(refused.bit_length())))
    return next(value for value in rounded if value > runs)


def _distance(family: TraceFamily, value: int) -> int:
    return min(abs(known - value) for known in family.traces)


def _next_value(known: Mapping[int, int], below: int, above: int, limit: int) -> int:
    """Where the line through the two values nearest to the limit meets it, kept inside; the middle if it is flat."""
    first, second = sorted(sorted(known, key=lambda value: abs(known[value] - limit))[:2])
    slope = (known[second] - known[first]) / (second - first)
    meets = first + (limit - known[first]) / slope if slope > 0 else 2 * max(below, 1)
    return int(max(below + 1, min(above - 1, meets)))
