"""Predict the published peaks of runs on several GPUs, beside what formulas and torch's tracker say of them.

    python benchmarks/sharding.py [--only ID …] [--out benchmarks/results/sharding.txt]

Writes the text, and a CSV beside it with every row of the table of published peaks that ran on more than one GPU:
predicted, or left out with its reason. Megatron-LM's goldens, and rows of litgpt that its own configuration runs on one
GPU, are carried over from ``results/accuracy.csv`` (``benchmarks/accuracy.py``); the others are traced, one at a time.
``MEMPLAN_DATA`` names the folder of research data; ``published/torchtitan`` says what else is needed.
"""

import argparse
import platform
import sys
import time
from collections.abc import Sequence
from importlib.metadata import version
from pathlib import Path

# As a script, Python finds ``published`` beside it; memplan itself may be a checkout that is not installed.
sys.path.append(str(Path(__file__).parents[1]))

from published.sharded import report
from published.sharded.predict import outcome_of
from published.sharded.records import Outcome, Row
from published.sharded.rows import rows

RESULTS = Path(__file__).parent / "results" / "sharding.txt"


def predicted(chosen: Sequence[Row]) -> list[Outcome]:
    """All rows one after another, each said on standard error when it is done."""
    done = []
    for row in chosen:
        started = time.perf_counter()
        outcome = outcome_of(row)
        done.append(outcome)
        if not row.reason:
            error = outcome.error(outcome.predicted)
            said = outcome.failure or f"{error:+.3f} %"
            print(f"{row.id}: {said} ({time.perf_counter() - started:.1f} s)", file=sys.stderr, flush=True)
    return done


def machine(done: Sequence[Outcome]) -> str:
    """What ran."""
    traced = sorted({each.peaks.torch for each in done if each.peaks})
    return (
        f"{time.strftime('%Y-%m-%d')}, {platform.machine()} without a GPU, Python {platform.python_version()}, "
        f"traced by torch {' and '.join(traced)}, DeepSpeed {version('deepspeed')}"
    )


def main() -> None:
    """Run, write and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", nargs="+", help="these rows alone; nothing is written")
    parser.add_argument("--out", type=Path, default=RESULTS, help="the text; the CSV lies beside it")
    options = parser.parse_args()
    done = predicted([row for row in rows() if not options.only or row.id in options.only])
    lines = "\n".join([machine(done), *report.text(done)]) + "\n"
    if not options.only:
        options.out.write_text(lines, encoding="utf-8")
        report.write_csv(options.out.with_suffix(".csv"), done)
    print(lines, end="")


if __name__ == "__main__":
    main()
