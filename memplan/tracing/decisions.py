"""What is taken for the answer where a program asks data: whether a condition holds, what a number is.

An answer that makes the program fail, or leave a function or a loop, is taken to be the exception: it is not given,
as far as the program's text tells (``program_text``). A loop that only data would end is left after a few rounds. If
the program fails all the same, the last answer was wrong: ``attempts`` runs it again with that one the other way.
"""

from collections.abc import Collection, Mapping

from memplan.tracing.account import AS_HEARD, CONDITIONS, Account
from memplan.tracing.asking import asked_at, asking, is_optimizer, minds, searches, shown
from memplan.tracing.heard import Answer, Heard, Place
from memplan.tracing.host_draws import Drawn, HostDraws
from memplan.tracing.integers import MOST_UNBOUNDED, IntegerRead, Readable
from memplan.tracing.patience import Patience
from memplan.tracing.program_text import Question, question
from memplan.tracing.records import Way

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
        self._patience = Patience(way)
        self.account = Account(self._patience)
        """What is told of the answers."""
        self.host_draws = HostDraws(drawn or _DRAWN.get(way, "likely"))
        """Random numbers that have no tensor."""
        self._given, self._moved = given or {}, moved
        self._heard = heard
        self.unused = set(self._given)
        """Places where no integer was read that the user gave one for."""
        self._numbers = 0
        self._turns = False

    def begin_step(self) -> None:
        """Forget how often each question was asked."""
        self._patience.begin_step()
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
            self.account.note(AS_HEARD.format(self.steps))
        return answer

    def turn(self) -> bool:
        """Once steps have settled: is another one to come, in which an optimizer goes the other way than before?"""
        before, self._turns = self._turns, self.way == "most" and any(is_optimizer(file) for file, *_ in self.made)
        return self._turns and not before

    def holds(self, default: bool) -> bool:
        """Does a condition hold of data that nobody knows?

        Args:
            default: The answer where the program's text does not say what hangs on it.
        """
        self.asked += 1
        frame = asking()
        if frame is None:
            self.account.note(CONDITIONS)
            return default
        asked = question(frame)
        place = asked.place
        if (heard := self._heard_at(place)) is not None:
            return bool(heard)
        answer = self._forced(asked, place) if place in self.forced else self._answer(asked, place, default)
        self.made.pop(place, None)
        self.made[place] = answer
        self.account.condition(asked, answer=answer)
        return answer

    def number(self, likely: float) -> float:
        """A number that nobody knows.

        Args:
            likely: What it would be, if there is no reason for another.
        """
        self.asked += 1
        self._numbers += 1
        frame = asking()
        if frame is None:
            return likely
        asked = question(frame)
        place = asked.place
        if (heard := self._heard_at(place)) is not None:
            return float(heard)
        self.made.pop(place, None)
        self.made[place] = self.forced.get(place, True)
        over = self._patience.count(place) - self._patience.of(asked)
        if over > 0:
            self.account.ended(asked)
            return EXTREMES[over % len(EXTREMES)]
        if asked.is_compared and minds(asked):
            self.account.number(asked)
            if place not in self.forced and self.way in _COMPARED:
                return _COMPARED[self.way]
        return likely if self.made[place] else 0.0

    def falling(self) -> float:
        """A floating-point number that nobody knows: about one, and each a little below the one before."""
        return self.number((1.0 - DECAY) ** self._numbers)

    def integer(self, may_be: Readable) -> int:
        """An integer that nobody knows."""
        frame = asking()
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
            self.account.note(f"the integer read at {shown(asked)} is {self._given[read]}, as given")
        return None if read is None else self._given[read]

    def _integer(self, asked: Question, may_be: Readable, *, wanted: bool) -> int:
        most = MOST_UNBOUNDED if may_be.most is None else may_be.most
        self.integers[asked.place] = IntegerRead(shown=shown(asked), is_bounded=may_be.most is not None)
        self.account.integer(asked, may_be)
        if self.way == "most" or asked.place in self._moved:
            return most if wanted or self.way == "most" else 0
        if self.way == "other":
            # Nothing, or if the program cannot do with nothing, one.
            return 0 if wanted else 1
        return may_be.likely if wanted else int(may_be.likely != 1)

    # ------------------------------------------------------------------ which answer

    def _forced(self, asked: Question, place: Place) -> bool:
        """The answer that was found out before; where it stays in a loop, for as long as patience lasts."""
        answer = self.forced[place]
        stays = asked.kind in ("exit", "loop") and asked.leaves_on is (not answer)
        return answer != (stays and self._patience.count(place) > self._patience.of(asked))

    def _answer(self, asked: Question, place: Place, default: bool) -> bool:
        leaves = asked.leaves_on
        if leaves is None or (asked.kind == "exit" and not minds(asked)):
            return self._chosen(place, default) if minds(asked) else default
        if asked.kind == "failure":
            return not leaves
        if self.way == "early" and asked.kind == "exit":
            return leaves
        if self._patience.count(place) <= self._patience.of(asked):
            return not leaves
        self._patience.forget(place)
        if not searches(asked):
            self.account.ended(asked)
        return leaves

    def _chosen(self, place: Place, default: bool) -> bool:
        """Which of two ways that both go on.

        Asked again, it may be now one and now the other: what one way leaves behind then lives beside what the other
        makes (L-BFGS, whose history is full, and which skips an update).
        """
        times = self._patience.count(place)
        if times > 1 or is_optimizer(place[0]):
            self.account.ways["most"] = None
        turned = self.way == "other" or (self.way == "most" and (self._turns or times % 2 == 0))
        return default != turned
