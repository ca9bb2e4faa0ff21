"""What became of a program, and the table by feature."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import NamedTuple

from differential.program import Program
from differential.run import Outcome, both

CLOSE = 0.005
"""Relative error up to which a prediction is right."""
_SEARCHING = "lbfgs"
"""The feature whose memory data decide step by step: the table sums up the others, too."""


class Verdict(StrEnum):
    """From best to worst."""

    RIGHT = "right"
    """Within ``CLOSE``."""
    ANNOUNCED = "announced"
    """Further off, but the report names something that a plain program's does not, and its interval holds the truth."""
    SILENT = "silent"
    """Further off, and no word of it."""
    REFUSED = "refused"
    """A program that runs, and no answer."""
    CRASHED = "crashed"
    """An exception that is none of memplan's own."""
    INVALID = "invalid"
    """The program itself does not run: it counts for nothing."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Judgement:
    """What became of a program."""

    verdict: Verdict
    truth: int = 0
    """Bytes of the real peak."""
    predicted: int = 0
    said: tuple[str, ...] = ()
    """What the report says beside the usual."""
    note: str = ""
    """Where the peaks were, or the error."""

    @property
    def error(self) -> float:
        """Predicted over true, less one; 0.0 where there is no figure."""
        return self.predicted / self.truth - 1 if self.truth and self.predicted else 0.0

    @property
    def line(self) -> str:
        """For a person: verdict, true and predicted bytes, error."""
        figures = " " * 36
        if self.predicted:
            figures = f"{self.truth:>12,} {self.predicted:>12,} {100 * self.error:>+9.3f}%"
        return f"{self.verdict:<9} {figures}"


class Row(NamedTuple):
    """A program of a run and what became of it."""

    number: int
    program: Program
    judged: Judgement

    @property
    def line(self) -> str:
        """For a person."""
        return f"{self.number:>6} {self.judged.line}  {self.program.words}  {self.judged.note}"


def judge(program: Program, usual: frozenset[str]) -> Judgement:
    """Run a program, predict it and compare.

    Args:
        program: The program.
        usual: What the report of every program says.
    """
    return compared(*both(program), usual)


def compared(truth: Outcome, guess: Outcome, usual: frozenset[str]) -> Judgement:
    """Compare what a run took with what was predicted."""
    if "error" in truth:
        return Judgement(verdict=Verdict.INVALID, note=truth["error"])
    if "error" in guess:
        verdict = Verdict.REFUSED if guess["kind"] == "refused" else Verdict.CRASHED
        return Judgement(verdict=verdict, truth=truth["peak"], note=guess["error"])
    said = tuple(word for word in guess["words"] if word not in usual)
    return Judgement(
        verdict=_verdict(truth, guess, said),
        truth=truth["peak"],
        predicted=guess["peak"],
        said=said,
        note=f"{' '.join(guess['at'])} | {' '.join(truth['at'][-2:])}",
    )


def _verdict(truth: Outcome, guess: Outcome, said: Sequence[str]) -> Verdict:
    if abs(guess["peak"] / truth["peak"] - 1) <= CLOSE:
        return Verdict.RIGHT
    held = guess["low"] <= truth["peak"] <= guess["high"]
    return Verdict.ANNOUNCED if said and held else Verdict.SILENT


def table(rows: Iterable[Row]) -> str:
    """By feature: programs, how many of each verdict, the worst error."""
    valid = [row for row in rows if row.judged.verdict is not Verdict.INVALID]
    features = sorted({feature for row in valid for feature in row.program.features})
    heads = ("right", "announced", "silent", "refused", "crashed")
    lines = [f"{'feature':<22}{'programs':>9}" + "".join(f"{head:>10}" for head in heads) + f"{'worst':>10}"]
    lines += [_line(feature, [row for row in valid if feature in row.program.features]) for feature in features]
    others = [row for row in valid if _SEARCHING not in row.program.features]
    return "\n".join([*lines, _line(f"all but {_SEARCHING}", others), _line("all", valid)])


def _line(name: str, rows: Sequence[Row]) -> str:
    counts = {verdict: sum(row.judged.verdict is verdict for row in rows) for verdict in Verdict}
    worst = max((row.judged.error for row in rows), key=abs, default=0.0)
    figures = "".join(f"{count:>10}" for verdict, count in counts.items() if verdict is not Verdict.INVALID)
    return f"{name:<22}{len(rows):>9}{figures}{100 * worst:>+9.2f}%"
