"""The largest batch that runs, found by running it. Memory is taken to grow with the batch."""

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from memplan.errors import several
from memplan.runtime.adaptive.oom import first_line, forget, is_oom, release_memory
from memplan.runtime.adaptive.prediction import predicted_size
from memplan.runtime.adaptive.ranks import Ranks
from memplan.runtime.adaptive.records import Ended, FoundBatch, Try


@dataclass(frozen=True, slots=True, kw_only=True)
class Bracket:
    """What is known of the largest size that fits. Sizes are counted from 1 in whatever unit is searched in."""

    fits: int = 0
    """Largest that fits."""
    fails: int | None = None
    """Smallest that does not; None: none is known."""
    most: int | None = None
    """Largest that is allowed."""
    stride: int = 1
    """How far the next jump outwards goes; it doubles with each."""
    start: int = 1
    """Where the search begins."""
    doubles: bool = True
    """Jump from the start to its double, as is right for a start that is no more than a start; False: a start that is
    believed in is left by 1, 2, 4 …, so that the true answer next to it takes two tries."""

    @property
    def is_closed(self) -> bool:
        """Is there nothing left to try?"""
        return self.fits == self.most or (self.fails is not None and self.fails - self.fits <= 1)


def next_size(known: Bracket) -> int:
    """The size to try next, in a bracket that is not closed."""
    if not known.fits and known.fails is None:
        wanted = known.start
    elif known.fails is None:
        wanted = known.fits * 2 if known.doubles else known.fits + known.stride
    elif not known.fits and not known.doubles:
        wanted = max(known.fails - known.stride, known.fails // 2)
    else:
        wanted = (known.fits + known.fails) // 2
    return wanted if known.most is None else min(wanted, known.most)


def narrowed(known: Bracket, size: int, *, fits: bool) -> Bracket:
    """The bracket after a try; a jump outwards from a believed start is followed by one twice as long."""
    is_outwards = (fits and known.fails is None and known.fits) or (not fits and not known.fits and known.fails)
    stride = known.stride * 2 if is_outwards else known.stride
    if fits:
        return replace(known, fits=max(known.fits, size), stride=stride)
    return replace(known, fails=size if known.fails is None else min(known.fails, size), stride=stride)


def find_batch(
    step_for: Callable[[int], object],
    *,
    start: int = 1,
    prediction: int | str | Path | Mapping[str, Any] | None = None,
    gpu: str | None = None,
    most: int | None = None,
    multiple_of: int = 1,
    time_limit: float | None = None,
    max_tries: int = 50,
    ranks: Ranks | None = None,
    release: Callable[[], object] = release_memory,
) -> FoundBatch:
    """Find the largest batch size that ``step_for`` survives.

    Doubles from ``start`` until it fails and bisects from there; or begins at a prediction and leaves it by 1, 2, 4 …
    steps, so that one that is right takes two tries: itself, and one more.

    Args:
        step_for: Runs steps of a given batch size and raises where they fail. Two optimizer steps are what counts: the
            first one makes the optimizer's state. It changes the model it trains: let it make one, or put yours back.
        start: First size, where nothing is predicted.
        prediction: A size; or the file that ``memplan batch -f json=FILE`` wrote, or what it holds.
        gpu: Which of the prediction's GPUs this is, where it has several.
        most: Largest size that is allowed; None: the search goes on until one fails.
        multiple_of: Only multiples are tried.
        time_limit: Seconds after which no further try begins; a running one is not stopped.
        max_tries: Tries after which none begins.
        ranks: Whose sizes have to be the same: a size fits where it fits on all. ``step_for`` must not meet the other
            ranks itself, or one that runs out of memory leaves them waiting: see ``AutoMicroBatch``.
        release: Gives memory back between tries.

    Returns:
        The largest size that ran; ``ended`` says how it is known. That nothing fits is an answer, not an error.

    Raises:
        UsageError: A number makes no sense, or the prediction cannot be read.
        MemplanError: The other ranks did not come.
        Exception: Whatever ``step_for`` raises that is not for want of memory.
    """
    _refuse_wrong(start, most, multiple_of, time_limit, max_tries)
    ranks = ranks or Ranks()
    [first] = ranks.minimum((start if prediction is None else predicted_size(prediction, gpu=gpu),))
    bracket = Bracket(
        start=max(1, first // multiple_of),
        most=None if most is None else most // multiple_of,
        doubles=prediction is None,
    )
    began = time.monotonic()
    tries: list[Try] = []
    while not bracket.is_closed:
        is_over = len(tries) >= max_tries or (time_limit is not None and time.monotonic() - began >= time_limit)
        if ranks.any(is_over):
            break
        units = next_size(bracket)
        tried = _try(step_for, units * multiple_of, ranks)
        release()
        tries.append(tried)
        bracket = narrowed(bracket, units, fits=tried.fits)
    return FoundBatch(
        size=bracket.fits * multiple_of,
        ended=_ended(bracket),
        fails_at=(bracket.fails or 0) * multiple_of,
        tries=tuple(tries),
        seconds=time.monotonic() - began,
    )


def _try(step_for: Callable[[int], object], size: int, ranks: Ranks) -> Try:
    began = time.monotonic()
    error = _error_of(step_for, size)
    seconds = time.monotonic() - began
    said = ""
    if error is not None:
        said = first_line(error)
        forget(error)
    return Try(size=size, fits=not ranks.any(error is not None), seconds=seconds, error=said)


def _error_of(step_for: Callable[[int], object], size: int) -> Exception | None:
    # A function of its own: its frame has ended, and can be cleared, when the error is forgotten.
    try:
        step_for(size)
    except Exception as error:
        if not is_oom(error):
            raise
        return error
    return None


def _ended(bracket: Bracket) -> Ended:
    if not bracket.is_closed:
        return Ended.TIMED_OUT
    if bracket.fits == bracket.most:
        return Ended.LIMIT
    return Ended.OPTIMAL if bracket.fits else Ended.INFEASIBLE


def _refuse_wrong(start: int, most: int | None, multiple_of: int, time_limit: float | None, max_tries: int) -> None:
    wrong = [
        f"{name} must be at least {least}, not {value}"
        for name, value, least in (
            ("start", start, 1),
            ("multiple_of", multiple_of, 1),
            ("max_tries", max_tries, 1),
            ("most", most, max(1, multiple_of)),
            ("time_limit", time_limit, 0),
        )
        if value is not None and value < least
    ]
    if wrong:
        raise several(wrong)
