"""Predict every published peak whose configuration is known well enough, and say how far off the predictions are.

    python benchmarks/accuracy.py [--source NAME …] [--only ID …] [--resume] [--summary]

Writes ``results/accuracy.csv`` after each row, and prints what ``results/accuracy.txt`` holds. ``MEMPLAN_DATA`` names
the folder of research data; ``published/*`` say what else each source needs. Exclusions were decided before any error
was looked at, and every row of the table of published peaks is either predicted or excluded with its reason.
"""

import argparse
import importlib
import platform
import sys
import time
from collections.abc import Iterator, Sequence
from importlib.metadata import version
from pathlib import Path

# As a script, Python finds ``published`` beside it; memplan itself may be a checkout that is not installed.
sys.path.append(str(Path(__file__).parents[1]))

from published import outcomes as records
from published import summary
from published.case import Case, Excluded
from published.outcomes import Outcome
from published.table import accounted, read_table

SOURCES = ("snapshots", "litgpt", "liger", "fitcheck", "torchtune", "megatron", "others")
"""Modules of ``published`` that offer ``cases``."""
RESULTS = Path(__file__).parent / "results"


def gather(names: Sequence[str]) -> tuple[list[Case], list[Excluded], list[str]]:
    """All cases and exclusions of some sources, and which sources could not be asked."""
    cases: list[Case] = []
    excluded: list[Excluded] = []
    broken: list[str] = []
    for name in names:
        try:
            found, without = importlib.import_module(f"published.{name}").cases()
        except Exception as error:  # noqa: BLE001 - a source that lacks its packages must not cost the others
            broken.append(f"{name}: {type(error).__name__}: {error}")
            continue
        cases += found
        excluded += without
    return cases, excluded, broken


def run(cases: Sequence[Case], path: Path, *, resume: bool) -> dict[str, Outcome]:
    """Predict what is not in the file yet; the file holds each row as soon as it is there.

    Args:
        cases: What to run.
        path: The file. Rows of other cases stay in it.
        resume: Keep rows of these cases that succeeded earlier.

    Returns:
        All of the file's rows by id.
    """
    done = records.read(path)
    for number, case in enumerate(cases, 1):
        former = done.get(case.id)
        if resume and former is not None and not former.failed:
            continue
        done[case.id] = outcome = records.outcome_of(case)
        records.write(path, done.values())
        said = outcome.failure or f"{outcome.error_percent:+.4f} %"
        print(f"{number}/{len(cases)} {case.id}: {said} ({outcome.seconds:.1f} s)", file=sys.stderr, flush=True)
    return done


def report(outcomes: Sequence[Outcome], cases: Sequence[Case], excluded: Sequence[Excluded]) -> Iterator[str]:
    """The text of ``accuracy.txt``."""
    table = read_table()
    known = accounted({case.id for case in cases} | {each.id for each in excluded}, table)
    yield f"{time.strftime('%Y-%m-%d')}, Python {platform.python_version()}, torch {version('torch')}"
    yield "Errors are predicted over published, less one; 'within digits': no further off than half of the last digit."
    yield ""
    yield from summary.error_table(outcomes)
    if len(outcomes) < len(cases):
        yield f"{len(cases) - len(outcomes)} of {len(cases)} cases have not been run: --resume goes on with them."
    yield ""
    yield "What others reach, each on figures of its own choice:"
    yield from (f"{name:<66}{error:>8}  ({source})" for name, error, source in summary.ANCHORS)
    yield ""
    yield from summary.capacity_table(outcomes)
    cards = {known[row["id"]]: row["gpu"] for row in table if row["id"] in known}
    yield from summary.card_table(outcomes, cards)
    yield ""
    yield "Most off:"
    yield from summary.worst_table(outcomes)
    failed = [each for each in outcomes if each.failed]
    if failed:
        yield ""
        yield "Failed:"
        yield from (f"{each.id}: {each.failure}" for each in failed)
    yield ""
    yield f"Excluded: {len(excluded)} figures"
    yield from summary.excluded_table(excluded)
    yield ""
    predicted = {each.id for each in cases}
    ran = sum(known.get(row["id"]) in predicted for row in table)
    yield (
        f"Of the {len(table)} rows of the table, {ran} can be run, {len(known) - ran} are excluded, "
        f"{len(table) - len(known)} are not accounted for."
    )


def main() -> None:
    """Run and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--source", nargs="+", choices=SOURCES, default=SOURCES, help="run these sources alone")
    parser.add_argument("--only", nargs="+", help="run these rows alone")
    parser.add_argument("--resume", action="store_true", help="keep the rows that the file holds")
    parser.add_argument("--summary", action="store_true", help="run nothing; read the file and print")
    parser.add_argument("--csv", type=Path, default=RESULTS / "accuracy.csv", help="where rows are kept")
    options = parser.parse_args()
    cases, excluded, broken = gather(SOURCES)
    wanted = gather(options.source)[0] if tuple(options.source) != SOURCES else cases
    chosen = [case for case in wanted if not options.only or case.id in options.only]
    done = records.read(options.csv) if options.summary else run(chosen, options.csv, resume=options.resume)
    known = {case.id for case in cases}
    text = "\n".join(report([each for each in done.values() if each.id in known], cases, excluded)) + "\n"
    options.csv.with_suffix(".txt").write_text(text, encoding="utf-8")
    print(text, end="")
    for line in broken:
        print(f"not asked: {line}", file=sys.stderr)


if __name__ == "__main__":
    main()
