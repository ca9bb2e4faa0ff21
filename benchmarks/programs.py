"""Other people's programs, as they are: what ``memplan estimate`` says of each, and a real run on the CPU beside it.

    python benchmarks/programs.py FOLDER [--only NAME ...] [--real] [--save results/programs.txt]

``programs.tsv`` has a line for each: what is typed for a GPU, what for the CPU (nothing where it needs a GPU),
repository and commit. ``FOLDER`` has the repositories; data that a program reads of its own files (tokens, text) is
made of anything of the right form. Failures stay in the table, with the words of the refusal.
"""

import argparse
import csv
import json
import os
import re
import shlex
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from statistics import median
from typing import Any, NamedTuple

PROGRAMS = Path(__file__).with_suffix(".tsv")
GOAL = 0.005
"""Share by which a prediction may differ from the real run."""
LIMIT = "240"
"""Seconds for each child process of a command."""
MIB = 1 << 20


class Outcome(NamedTuple):
    """What came of one command."""

    code: int
    """Exit code."""
    cpu_seconds: float
    """User and system time, children included."""
    answer: Mapping[str, Any]
    """Its JSON; empty where it has none."""
    told: str
    """Standard error."""


def main() -> None:
    """Run the programs and print the tables."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--only", nargs="*", default=())
    parser.add_argument("--real", action="store_true", help="run for real on the CPU instead of estimating")
    parser.add_argument("--save", type=Path)
    options = parser.parse_args()
    with PROGRAMS.open(encoding="utf-8") as file:
        programs = [
            each for each in csv.DictReader(file, delimiter="\t") if not options.only or each["name"] in options.only
        ]
    lines: list[str] = []
    for line in (_measured if options.real else _estimated)(programs, options.folder):
        print(line, flush=True)
        lines.append(line)
    if options.save:
        options.save.write_text("\n".join(lines) + "\n", encoding="utf-8")


def _estimated(programs: Sequence[Mapping[str, str]], folder: Path) -> Iterator[str]:
    answered = 0
    for program in programs:
        if not (folder / program["folder"]).exists():
            yield f"{program['name']:24} {program['folder']} is not there"
            continue
        done = _run(["estimate", "--no-cache", "--quiet"], program["words"], folder / program["folder"])
        answered += done.code == 0
        yield f"{program['name']:24} exit {done.code}  {done.cpu_seconds:6.1f} s  {_peak(done):>12}  {program['words']}"
        for said in _said(done):
            yield f"{'':26}{said}"
    yield f"{answered} of {len(programs)} answered"


def _measured(programs: Sequence[Mapping[str, str]], folder: Path) -> Iterator[str]:
    shares: list[float] = []
    for program in programs:
        words = program["words on the cpu"]
        if not words:
            yield f"{program['name']:24} not run: it needs a GPU, or is no program"
            continue
        done = _run(["validate", "--device", "cpu", "--quiet"], words, folder / program["folder"])
        if not done.answer:
            yield f"{program['name']:24} exit {done.code}  {_refusal(done.told)}"
            continue
        predicted, real = (done.answer[side]["requested_bytes"] for side in ("predicted", "measured"))
        shares.append(predicted / real - 1)
        mark = "" if abs(shares[-1]) <= GOAL else "  MISS"
        yield (
            f"{program['name']:24} {predicted:>14,} {real:>14,} {shares[-1]:+8.3%}  {done.answer['run']['steps']} steps"
            f"  {done.cpu_seconds:6.1f} s{mark}"
        )
    if shares:
        within = sum(abs(share) <= GOAL for share in shares)
        yield f"{within} of {len(shares)} within {GOAL:.1%}, median {median(map(abs, shares)):.3%}"


def _run(options: Sequence[str], words: str, folder: Path) -> Outcome:
    with tempfile.TemporaryDirectory() as scratch:
        answer = Path(scratch) / "answer.json"
        command = [
            sys.executable,
            "-m",
            "memplan",
            *options,
            "--timeout",
            LIMIT,
            "-f",
            f"json={answer}",
            *shlex.split(words),
        ]
        before = os.times()
        done = subprocess.run(
            command, cwd=folder, capture_output=True, text=True, check=False, stdin=subprocess.DEVNULL
        )
        after = os.times()
        seconds = after.children_user + after.children_system - before.children_user - before.children_system
        read = json.loads(answer.read_text(encoding="utf-8")) if answer.is_file() else {}
    return Outcome(done.returncode, seconds, read, done.stderr)


def _peak(done: Outcome) -> str:
    return f"{done.answer['peak']['requested_bytes'] / MIB:,.1f} MiB" if done.answer else ""


def _said(done: Outcome) -> Iterator[str]:
    """Stand-ins and assumptions; or the words of the refusal."""
    if done.answer:
        yield from (str(each) for each in done.answer["assumptions"])
    else:
        yield _refusal(done.told)


def _refusal(told: str) -> str:
    lines = told.splitlines()
    start = next((index for index, line in enumerate(lines) if line.startswith("error:")), max(len(lines) - 3, 0))
    said = " | ".join(line.strip() for line in lines[start:])
    # Paths of this machine say nothing to others, nor do a terminal's colours.
    return re.sub(r"\x1b\[[0-9;]*m|(?<![\w.])/(?:[^\s/'\"]+/){2,}", "", said)[:400]


if __name__ == "__main__":
    main()
