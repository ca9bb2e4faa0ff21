"""The net: small programs drawn from a grammar, each run for real on the CPU and predicted, side by side.

Truth is torch.profiler's memory events of a few steps, one thread, as in ``cpu_truth``; the prediction is a whole
estimate for the ``cpu`` profile. A figure further off than 0.5 % is *silent* unless the report names something that it
does not say of a plain program, and its interval holds the truth. Usage::

    python benchmarks/differential.py --programs 200 --seed 1 --jobs 2 [--only FEATURE] [--save DIR] [--shrink 3]
    python benchmarks/differential.py --files mine.py yours.py --batch-size 8
"""

import argparse
import math
import multiprocessing
import os
import time
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path

from cpu_truth import _header
from differential.draw import FEATURES, draw
from differential.judge import Judgement, Row, Verdict, compared, judge, table
from differential.program import Program
from differential.run import of_file, usual_words
from differential.scripts import main_of
from differential.shrink import shrunk
from differential.write import source

FAILED = frozenset({Verdict.SILENT, Verdict.REFUSED, Verdict.CRASHED})
"""What the net is there to catch."""


def rows(options: argparse.Namespace) -> Iterator[Row]:
    """Judge the programs, each in the order of its number."""
    usual = usual_words()
    numbers = options.numbers or range(options.programs)
    tasks = [(number, options.seed, options.only, options.scripts, usual) for number in numbers]
    # Workers fork from here, where torch and memplan are imported, and fork once more for each program.
    with multiprocessing.get_context("fork").Pool(options.jobs) as pool:
        for (*drawn, _), judged in zip(tasks, pool.imap(_judged, tasks), strict=True):
            yield Row(drawn[0], _drawn(*drawn), judged)


def _judged(task: tuple[int, int, str, bool, frozenset[str]]) -> Judgement:
    *drawn, usual = task
    return judge(_drawn(*drawn), usual)


def _drawn(number: int, seed: int, only: str, scripts: bool) -> Program:
    program = draw(seed, number, only)
    return replace(program, main=main_of(seed, number)) if scripts else program


def judge_files(paths: Sequence[Path], batch_size: int) -> None:
    """Judge target files that somebody wrote, a line for each."""
    usual = usual_words()
    for path in paths:
        judged = compared(*of_file(path, batch_size), usual)
        print(f"{path.stem:<24} {judged.line}  {judged.said[0] if judged.said else judged.note}", flush=True)


def smallest(row: Row) -> Row:
    """The smallest program found that fails as this one does."""
    usual = usual_words()
    program = shrunk(row.program, lambda smaller: judge(smaller, usual).verdict is row.judged.verdict)
    return Row(row.number, program, judge(program, usual))


def show(row: Row) -> None:
    """Print a failure as a target file with what became of it."""
    print("\n# " + "-" * 100 + f"\n# {row.line}")
    for sentence in row.judged.said:
        print(f"# says: {sentence}")
    print(source(row.program))


def main() -> None:
    """Draw, judge, print the table, and the smallest programs that fail."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--programs", type=int, default=100)
    parser.add_argument("--numbers", type=int, nargs="*", help="only these programs of the seed")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--jobs", type=int, default=os.cpu_count())
    parser.add_argument("--only", choices=FEATURES, default="", help="programs with this feature")
    parser.add_argument(
        "--minutes", type=float, default=math.inf, help="stop then, with as many programs as were judged"
    )
    parser.add_argument("--save", type=Path, help="folder for the files of all programs that are not right")
    parser.add_argument("--shrink", type=int, default=0, help="how many failures to make small")
    parser.add_argument("--scripts", action="store_true", help="with main parts: a whole run is the truth")
    parser.add_argument("--files", type=Path, nargs="*", help="target files to judge instead of drawn programs")
    parser.add_argument("--batch-size", type=int, default=8, help="of these files")
    options = parser.parse_args()
    if options.files:
        judge_files(options.files, options.batch_size)
        return
    started, seen = time.monotonic(), []
    for row in rows(options):
        seen.append(row)
        if row.judged.verdict is not Verdict.RIGHT:
            print(row.line, flush=True)
            _save(row, options.save)
        if time.monotonic() - started > 60 * options.minutes:
            break
    _summary(seen, options, time.monotonic() - started)
    for row in [row for row in seen if row.judged.verdict in FAILED][: options.shrink]:
        show(smallest(row))


def _save(row: Row, folder: Path | None) -> None:
    if folder is not None:
        folder.mkdir(parents=True, exist_ok=True)
        said = "".join(f"# says: {sentence}\n" for sentence in row.judged.said)
        (folder / f"{row.judged.verdict}_{row.number}.py").write_text(f"# {row.line}\n{said}{source(row.program)}")


def _summary(seen: Sequence[Row], options: argparse.Namespace, seconds: float) -> None:
    load = ", ".join(f"{each:.1f}" for each in os.getloadavg())
    used = os.times()
    print(f"\n{_header()}")
    print(
        f"seed {options.seed}, {len(seen)} programs drawn, {options.jobs} at once: {seconds / 60:.1f} minutes, "
        f"{(used.children_user + used.children_system) / 60:.1f} of them CPU time; load {load}"
    )
    print(table(seen))
    invalid = sum(row.judged.verdict is Verdict.INVALID for row in seen)
    print(f"{invalid} more do not run and count for nothing" if invalid else "all of them run")


if __name__ == "__main__":
    main()
