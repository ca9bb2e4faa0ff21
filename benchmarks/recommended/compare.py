"""What was recommended beside what was published, both by memplan's own traces and clock."""

import json
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from recommended import commands
from recommended.published import Published
from recommended.rows import remembered

AS_GOOD = 0.01
"""Speeds that differ by less are the same: the clock tells no smaller differences."""
Verdict = Literal["same", "better", "worse"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Way:
    """One way to run the job."""

    options: tuple[str, ...]
    """What is typed beside what both have."""
    gib: float
    """Device peak."""
    rate: float
    """Samples a second, over all ranks."""
    fits: bool
    """By memplan's trace."""

    @property
    def words(self) -> str:
        """In one line."""
        return " ".join(self.options) or "as given"


@dataclass(frozen=True, slots=True, kw_only=True)
class Compared:
    """One published run, and the answer."""

    run: Published
    ran: Way | None
    """What was published; None where it cannot be traced."""
    best: Way | None
    """What was recommended; None where nothing was found."""
    ending: str
    """How the search ended: what of how many ways is proved."""
    seconds: float
    """Of the search."""
    problem: str = ""
    """Why something is missing."""

    @property
    def verdict(self) -> Verdict:
        """Is the answer as good as what was published, which ran, whatever memplan's trace of it says?"""
        if self.best is None:
            return "worse"
        if self.ran is None:
            return "better"
        gain = self.best.rate / self.ran.rate - 1
        return "same" if abs(gain) <= AS_GOOD else "better" if gain > 0 else "worse"

    @property
    def why(self) -> str:
        """What the two differ in, and of what is worse why it was not taken."""
        return "; ".join([*self._hindered(), *self._differences()])

    def _hindered(self) -> Iterator[str]:
        if self.ran is None:
            yield "what was published cannot be traced"
        elif not self.ran.fits:
            yield "memplan's trace of what was published does not fit"
        elif self.verdict == "worse":
            yield "the time was over before it was traced"

    def _differences(self) -> Iterator[str]:
        if self.best is None or self.ran is None:
            return
        if set(self.best.options) == set(self.ran.options):
            yield "the same options"
        yield from (f"has {each}" for each in self.best.options if each not in self.ran.options)
        yield from (f"has no {each}" for each in self.ran.options if each not in self.best.options)


def compared(run: Published, folder: Path, *, budget: int, processes: int) -> Compared:
    """Ask, and clock what was published."""
    folder.mkdir(parents=True, exist_ok=True)
    run.write_plan(folder)
    limits = ["--time-limit", str(budget), "--jobs", str(processes)]
    asked = remembered(folder / "asked.json", lambda: _answer([*run.asked, *limits], folder))
    # Of this search the job as given alone is of interest, which one trace tells.
    ran = remembered(folder / "ran.json", lambda: _answer([*run.ran, "--time-limit", "1traces"], folder))
    given, best = ran.get("baseline"), asked.get("best")
    return Compared(
        run=run,
        ran=None if given is None else _way(given, _options(run.own.split())),
        best=None if best is None else _way(best, best["changes"]),
        ending=_ending(asked) if "proof" in asked else "no answer",
        seconds=asked["timings"]["search_seconds"] if "timings" in asked else 0.0,
        problem="; ".join(each["problem"] for each in (asked, ran) if "problem" in each),
    )


def _answer(words: Sequence[str], folder: Path) -> dict[str, Any]:
    """What the command said, or why it said nothing."""
    done = commands.run("recommend", *words, "--json", folder=folder)
    answer: dict[str, Any] = json.loads(done.out) if done.out.startswith("{") else {"problem": done.said}
    return answer


def _way(found: dict[str, Any], options: Iterable[str]) -> Way:
    gib, rate = found["device_bytes"] / 2**30, found["samples_per_second"]
    return Way(options=tuple(options), gib=gib, rate=rate, fits=found["fits"])


def _options(words: Sequence[str]) -> Iterator[str]:
    """``--checkpoint full --loss-chunks 8`` as two."""
    starts = [place for place, word in enumerate(words) if word.startswith("--")]
    for start, end in zip(starts, [*starts[1:], len(words)], strict=True):
        yield " ".join(words[start:end])


def _ending(answer: dict[str, Any]) -> str:
    proof = answer["proof"]
    ending = proof["ending"].replace("_", " ")
    gap = f", at most {100 * proof['gap']:.1f} % from the best" if proof["gap"] else ""
    return f"{ending}: {proof['proved']} of {proof['ways']} ways{gap}"
