"""What is taken for the answer where a program asks data: whether a condition holds, what a number is.

An answer that makes the program fail, or leave a function or a loop, is taken to be the exception: it is not given,
as far as the program's text tells (``program_text``). A loop that only data would end is left after a few rounds. If
the program fails all the same, the last answer was wrong: ``attempts`` runs it again with that one the other way.
"""

import sys
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from types import FrameType

import torch

from memplan.job.usercode import display, innermost, installed_part, is_foreign, is_user_file
from memplan.tracing.heard import Answer, Heard, Place
from memplan.tracing.host_draws import Drawn, HostDraws
from memplan.tracing.integers import MOST_UNBOUNDED, Readable
from memplan.tracing.program_text import Question, question
from memplan.tracing.records import Way

ROUNDS: Mapping[Way, int] = {"likely": 3, "early": 1, "other": 3, "most": 12, "later": 3}
"""Rounds of a loop that only data ends. Chosen: three show what a round leaves behind for the next, twelve how that
grows while a trace takes no more than four times as long. Data may go on for longer: the report says so."""
VISITS = 100
"""How often a question inside a loop is answered alike in a step; few loops that end by themselves are longer.

Chosen above what torch's own solvers do by default (``torch/optim/lbfgs.py``: 20 iterations, 25 evaluations)."""
MOST_VISITS = 10_000
"""The same, where no loop is in sight: it may be in another function.

Chosen so that a program which reads one number for each token of a long sequence is no loop yet."""
LOW, HIGH = -1e9, 1e9
"""What a number that is compared may be at least and at most, for the ends of the interval.

Chosen beyond any threshold or count that is compared, and within 32 bits."""
_COMPARED: Mapping[Way, float] = {"other": LOW, "most": HIGH}
_DRAWN: Mapping[Way, Drawn] = {"other": "least", "most": "greatest"}
EXTREMES = (HIGH, 0.0, LOW)
"""Numbers one of which ends any loop that waits for a number."""
DECAY = 2.0**-12
"""By what share each number read is below the one before: a loss that falls, as if nothing had converged yet.

Chosen so that one fall is far above the tolerances of torch's optimizers (``torch/optim/lbfgs.py``: 1e-9), and that
2,800 numbers are read before half is left."""

CHECKS = "what libraries check in the data is in order"
AS_HEARD = (
    "what the program reads of its data was read in {} steps that ran for real on this machine's CPU, with random "
    "numbers of their own"
)
AS_LONG_AS_IT_MAY = "taken to be as long as its options allow"
_TORCH = Path(torch.__file__).parent
_OPTIMIZERS = _TORCH / "optim"
_PLUMBING = frozenset({"_tensor.py", "_ops.py", "overrides.py", "_subclasses", "utils", "_library", "library.py", "_C"})
_PLUMBING |= {"_compile.py", "_dynamo"}
"""Files and folders of torch that pass calls on, and ask nothing for themselves."""


@dataclass(frozen=True, slots=True, kw_only=True)
class IntegerRead:
    """A place where a program reads an integer that nobody knows."""

    shown: str
    """File and line, as reports name them."""
    is_bounded: bool
    """Is it known how large the integer may be?"""


class Decisions:
    """Answers questions, and remembers which and how.

    Args:
        way: How what nobody knows turns out.
        forced: Answers that were found out before, by place.
        given: Integers that the user knows, by file and line (``train.py:88``).
        moved: Places where an integer is taken to be another than the likely one.
        heard: What a real run read; None: there was none.
        drawn: What steps draw on the host; None: what goes with the way.
    """

    def __init__(
        self,
        way: Way = "likely",
        forced: Mapping[Place, bool] | None = None,
        *,
        given: Mapping[str, int] | None = None,
        moved: Collection[Place] = (),
        heard: Heard | None = None,
        drawn: Drawn | None = None,
    ) -> None:
        self.way: Way = way
        self.forced: Mapping[Place, bool] = dict(forced or {})
        """Answers that were found out before, by place."""
        self.integers: dict[Place, IntegerRead] = {}
        """Integers that were read, and that nobody knows."""
        self.made: dict[Place, bool] = {}
        """Answers given, the one given last at the end."""
        self.asked = 0
        """Questions so far."""
        self.said: dict[str, None] = {}
        """What was taken for granted, each a sentence."""
        self.ways: dict[Way, None] = {}
        """Other ways in which the program might go."""
        self.unbounded: dict[str, None] = {}
        """Integers and loops that nothing bounds, each a phrase for what is not modelled."""
        self.host_draws = HostDraws(drawn or _DRAWN.get(way, "likely"))
        """Random numbers that have no tensor."""
        self._given, self._moved = given or {}, moved
        self._heard = heard
        self.unused = set(self._given)
        """Places where no integer was read that the user gave one for."""
        self._visits: dict[Place, int] = {}
        self._numbers = 0
        self._turns = False

    def begin_step(self) -> None:
        """Forget how often each question was asked."""
        self._visits.clear()
        if self._heard is not None:
            self._heard.begin_step()
        self.host_draws.begin_step()

    @property
    def steps(self) -> int | None:
        """Steps that data were asked in; None where nobody asked them."""
        return None if self._heard is None else self._heard.steps

    def heard(self) -> Answer | None:
        """What a real run read of its data here, or how many elements a mask selected; None where nobody asked."""
        place = asked_at() if self._heard is not None else None
        return None if place is None else self._heard_at(place)

    def _heard_at(self, place: Place) -> Answer | None:
        answer = self._heard.read(place) if self._heard is not None else None
        if answer is not None:
            self._note(AS_HEARD.format(self.steps))
        return answer

    def turn(self) -> bool:
        """Once steps have settled: is another one to come, in which an optimizer goes the other way than before?"""
        before, self._turns = self._turns, self.way == "most" and any(_is_optimizer(file) for file, *_ in self.made)
        return self._turns and not before

    def holds(self, default: bool) -> bool:
        """Does a condition hold of data that nobody knows?

        Args:
            default: The answer where the program's text does not say what hangs on it.
        """
        self.asked += 1
        frame = _asking()
        if frame is None:
            self._note("data-dependent conditions hold")
            return default
        asked = question(frame)
        place = asked.place
        if (heard := self._heard_at(place)) is not None:
            return bool(heard)
        answer = self.forced[place] if place in self.forced else self._answer(asked, place, default)
        self.made.pop(place, None)
        self.made[place] = answer
        self._say(asked, answer)
        return answer

    def number(self, likely: float) -> float:
        """A number that nobody knows.

        Args:
            likely: What it would be, if there is no reason for another.
        """
        self.asked += 1
        self._numbers += 1
        frame = _asking()
        if frame is None:
            return likely
        asked = question(frame)
        place = asked.place
        if (heard := self._heard_at(place)) is not None:
            return float(heard)
        self.made.pop(place, None)
        self.made[place] = self.forced.get(place, True)
        over = self._count(place) - self._patience(asked)
        if over > 0:
            self._bound(asked)
            return EXTREMES[over % len(EXTREMES)]
        if asked.is_compared and _minds(asked):
            self._note(f"the number read at {_shown(asked)} is taken to be about 1")
            self.ways |= dict.fromkeys(("other", "most"))
            if place not in self.forced and self.way in _COMPARED:
                return _COMPARED[self.way]
        return likely if self.made[place] else 0.0

    def falling(self) -> float:
        """A floating-point number that nobody knows: about one, and each a little below the one before."""
        return self.number((1.0 - DECAY) ** self._numbers)

    def integer(self, may_be: Readable) -> int:
        """An integer that nobody knows."""
        frame = _asking()
        asked = question(frame) if frame is not None else None
        if asked is not None and (known := self._known(asked)) is not None:
            return known
        heard = self._heard_at(asked.place) if asked is not None else None
        if heard is not None:
            return int(heard)
        if asked is None or asked.is_compared or asked.in_while:
            # Loops that wait for a number are left by the ways of ``number``.
            return int(self.number(may_be.likely))
        self.asked += 1
        place = asked.place
        self.made.pop(place, None)
        self.made[place] = self.forced.get(place, True)
        return self._integer(asked, may_be, wanted=self.made[place])

    def _known(self, asked: Question) -> int | None:
        """The integer that the user gave for this place."""
        read = next((key for key in self._given if f"/{asked.file}:{asked.line}".endswith(f"/{key}")), None)
        if read is not None:
            self.unused.discard(read)
            self._note(f"the integer read at {_shown(asked)} is {self._given[read]}, as given")
        return None if read is None else self._given[read]

    def _integer(self, asked: Question, may_be: Readable, *, wanted: bool) -> int:
        most = MOST_UNBOUNDED if may_be.most is None else may_be.most
        self.integers[asked.place] = IntegerRead(shown=_shown(asked), is_bounded=may_be.most is not None)
        bounds = "" if may_be.most is None else f", of 0 to {may_be.most}"
        self._note(f"the integer read at {_shown(asked)} is taken to be {may_be.likely}{bounds}")
        if may_be.most is None:
            self.unbounded[how_large(_shown(asked))] = None
        if self.way == "most" or asked.place in self._moved:
            return most if wanted or self.way == "most" else 0
        if self.way == "other":
            # Nothing, or if the program cannot do with nothing, one.
            return 0 if wanted else 1
        return may_be.likely if wanted else int(may_be.likely != 1)

    @staticmethod
    def place() -> str:
        """Where the user's program is now, for the end of a sentence; empty where that is not known."""
        frames: list[tuple[str, int]] = []
        frame = _asking()
        while frame is not None:
            frames.insert(0, (frame.f_code.co_filename, frame.f_lineno))
            frame = frame.f_back
        found = innermost(frames)
        return f" ({installed_part(found)})" if found else ""

    def is_made_whole(self) -> bool:
        """Is the number that is read now made an integer at once?"""
        frame = _asking()
        return frame is not None and question(frame).is_whole

    # ------------------------------------------------------------------ which answer

    def _answer(self, asked: Question, place: Place, default: bool) -> bool:
        leaves = asked.leaves_on
        if leaves is None or (asked.kind == "exit" and not _minds(asked)):
            return self._chosen(place, default) if _minds(asked) else default
        if asked.kind == "failure":
            return not leaves
        if self.way == "early" and asked.kind == "exit":
            return leaves
        if self._count(place) <= self._patience(asked):
            return not leaves
        self._visits[place] = 0
        if not _searches(asked):
            self._bound(asked)
        return leaves

    def _chosen(self, place: Place, default: bool) -> bool:
        """Which of two ways that both go on.

        Asked again, it may be now one and now the other: what one way leaves behind then lives beside what the other
        makes (L-BFGS, whose history is full, and which skips an update).
        """
        times = self._count(place)
        if times > 1 or _is_optimizer(place[0]):
            self.ways["most"] = None
        turned = self.way == "other" or (self.way == "most" and (self._turns or times % 2 == 0))
        return default != turned

    def _patience(self, asked: Question) -> int:
        """How often a question is answered alike within a step."""
        if _searches(asked):
            # Losses fall (``DECAY``): what ends it is a slope that is small enough, not a loss that has risen.
            return VISITS if asked.is_more and asked.kind == "exit" else 1
        if asked.endless or (asked.kind == "loop" and self.way == "early"):
            return ROUNDS[self.way]
        return VISITS if asked.in_while or asked.kind == "exit" else MOST_VISITS

    def _count(self, place: Place) -> int:
        self._visits[place] = self._visits.get(place, 0) + 1
        return self._visits[place]

    def _note(self, sentence: str) -> None:
        self.said[sentence] = None

    def _bound(self, asked: Question) -> None:
        self.ways["most"] = None
        self._note(f"data end the loop at {_shown(asked)}: taken to be after {self._patience(asked)} rounds")
        if asked.endless:
            self.unbounded[f"how long the loop at {_shown(asked)} goes on: {ROUNDS['most']} rounds at most"] = None

    def _say(self, asked: Question, answer: bool) -> None:
        if not _minds(asked):
            self._note("data-dependent conditions hold" if answer else CHECKS)
            return
        if asked.kind != "failure":
            self.ways["other" if asked.leaves_on is None else "early"] = None
        if _is_optimizer(asked.file) and asked.leaves_on is not None:
            self._note(f"{_library_part(asked.file)}: data decide how often it goes on; {AS_LONG_AS_IT_MAY}")
            return
        if asked.kind == "loop" or asked.endless:
            self._note(f"data end the loop at {_shown(asked)}: taken to be after {self._patience(asked)} rounds")
            return
        word = "true" if answer else "false"
        self._note(f"data decide at {_shown(asked)}: taken to be {word}{_because(asked, answer)}")


def how_large(shown: str) -> str:
    """What is not modelled of an integer that nothing bounds."""
    return f"how large the integer read at {shown} may be: {MOST_UNBOUNDED} at most"


def _because(asked: Question, answer: bool) -> str:
    if asked.leaves_on is None or answer == asked.leaves_on:
        return ""
    return ", so that the program goes on" if asked.kind == "failure" else ", so that nothing ends early"


def _shown(asked: Question) -> str:
    return f"{installed_part(display(asked.file))}:{asked.line}"


@cache
def _is_library(filename: str) -> bool:
    return not is_user_file(filename) and not _is_optimizer(filename)


@cache
def _is_optimizer(filename: str) -> bool:
    return Path(filename).is_relative_to(_OPTIMIZERS)


def _searches(asked: Question) -> bool:
    """Is it the search for a step's length along a direction? It seldom goes beyond the second try."""
    return any(word in asked.function.lower() for word in ("wolfe", "line_search", "linesearch", "backtrack"))


def _library_part(filename: str) -> str:
    return "torch.optim." + Path(filename).stem


def _minds(asked: Question) -> bool:
    """Is it the user's own control flow, or that of an optimizer, and no check inside a library?"""
    return not _is_library(asked.file)


@cache
def _may_ask(filename: str) -> bool:
    if is_foreign(filename):
        return True
    path = Path(filename)
    return path.is_relative_to(_TORCH) and path.relative_to(_TORCH).parts[0] not in _PLUMBING


def asked_at() -> Place | None:
    """Return the place of the program that asks data now; None outside of any."""
    frame = _asking()
    return None if frame is None else question(frame).place


def _asking() -> FrameType | None:
    """The innermost frame that asks, beneath memplan and what torch only passes a call on with."""
    frame: FrameType | None = sys._getframe(2)
    while frame is not None and not _may_ask(frame.f_code.co_filename):
        frame = frame.f_back
    return frame
