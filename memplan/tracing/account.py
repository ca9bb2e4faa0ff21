"""What reports tell of the answers that a program was given: what was taken for granted, and what else might be."""

from pathlib import Path
from typing import TYPE_CHECKING

from memplan.tracing.asking import is_optimizer, minds, shown
from memplan.tracing.integers import MOST_UNBOUNDED, Readable
from memplan.tracing.patience import ROUNDS, Patience
from memplan.tracing.program_text import Question

if TYPE_CHECKING:
    from memplan.tracing.records import Way

CHECKS = "what libraries check in the data is in order"
CONDITIONS = "data-dependent conditions hold"
AS_HEARD = (
    "what the program reads of its data was read in {} steps that ran for real on this machine's CPU, with random "
    "numbers of their own"
)
AS_LONG_AS_IT_MAY = "taken to be as long as its options allow"


class Account:
    """Sentences, and ways to trace besides.

    Args:
        patience: Says after how many rounds a loop is left.
    """

    def __init__(self, patience: Patience) -> None:
        self._patience = patience
        self.said: dict[str, None] = {}
        """What was taken for granted, each a sentence."""
        self.ways: dict[Way, None] = {}
        """Other ways in which the program might go."""
        self.unbounded: dict[str, None] = {}
        """Integers and loops that nothing bounds, each a phrase for what is not modelled."""

    def note(self, sentence: str) -> None:
        """Say once that something was taken for granted."""
        self.said[sentence] = None

    def number(self, asked: Question) -> None:
        """Tell of a number that is compared."""
        self.note(f"the number read at {shown(asked)} is taken to be about 1")
        self.ways |= dict.fromkeys(("other", "most"))

    def integer(self, asked: Question, may_be: Readable) -> None:
        """Tell of an integer that nobody knows."""
        bounds = "" if may_be.most is None else f", of 0 to {may_be.most}"
        self.note(f"the integer read at {shown(asked)} is taken to be {may_be.likely}{bounds}")
        if may_be.most is None:
            self.unbounded[how_large(shown(asked))] = None

    def ended(self, asked: Question) -> None:
        """Tell of a loop that was left."""
        self.ways["most"] = None
        self._loop(asked)
        if asked.endless:
            self.unbounded[f"how long the loop at {shown(asked)} goes on: {ROUNDS['most']} rounds at most"] = None

    def condition(self, asked: Question, *, answer: bool) -> None:
        """Tell of the answer to a condition."""
        if not minds(asked):
            self.note(CONDITIONS if answer else CHECKS)
            return
        if asked.kind != "failure":
            self.ways["other" if asked.leaves_on is None else "early"] = None
        if is_optimizer(asked.file) and asked.leaves_on is not None:
            name = f"torch.optim.{Path(asked.file).stem}"
            self.note(f"{name}: data decide how often it goes on; {AS_LONG_AS_IT_MAY}")
        elif asked.kind == "loop" or asked.endless:
            self._loop(asked)
        else:
            word = "true" if answer else "false"
            self.note(f"data decide at {shown(asked)}: taken to be {word}{_because(asked, answer)}")

    def _loop(self, asked: Question) -> None:
        self.note(f"data end the loop at {shown(asked)}: taken to be after {self._patience.of(asked)} rounds")


def how_large(place: str) -> str:
    """What is not modelled of an integer that nothing bounds."""
    return f"how large the integer read at {place} may be: {MOST_UNBOUNDED} at most"


def _because(asked: Question, answer: bool) -> str:
    if asked.leaves_on is None or answer == asked.leaves_on:
        return ""
    return ", so that the program goes on" if asked.kind == "failure" else ", so that nothing ends early"
