"""Predict measured peaks of compiled training steps: torch's ``aot_eager`` and ``inductor`` on a real GPU.

    python benchmarks/compiled.py [--only NAME …]

``measured/compiled_budget.csv`` in the folder that ``MEMPLAN_DATA`` names holds 28 peaks of ``max_memory_allocated``
of a GTX 1650 under ``activation_memory_budget`` (torch 2.14); ``compiled_budget/program.py`` is what ran. Each is
predicted by the command line, as a user would type it, in a process of its own, and written to ``results/compiled.csv``
at once; what is there already is not run again. Between the bytes asked for and the allocated ones lie rests of blocks
that are not split: which block serves which request decides them. Needs transformers, and triton for ``inductor``.
"""

import argparse
import csv
import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from statistics import median
from typing import NamedTuple

HERE = Path(__file__).parent
RESULTS = HERE / "results" / "compiled.txt"
KEPT = RESULTS.with_suffix(".csv")
TOLERANCE = 0.1
"""Per cent."""
_EAGER = "eager (uncompiled)"


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """What ran."""

    model: str
    """``llama`` or ``bert``."""
    scale: int
    """Four times so many layers, 128 times so many tokens."""
    backend: str
    """Of ``torch.compile``."""
    budget: str
    """``activation_memory_budget``; empty where nothing is compiled."""

    @property
    def name(self) -> str:
        """The job in a word."""
        return f"{self.model}{self.scale} {self.backend} {self.budget}".strip()


@dataclass(frozen=True, slots=True, kw_only=True)
class Peak:
    """A measured peak in bytes."""

    job: Job
    """What ran."""
    first: int
    """Of the first measured repetition."""
    settled: int
    """Of the last."""
    before: int
    """Allocated before the repetitions."""


def peaks() -> list[Peak]:
    """The table's rows."""
    path = Path(os.environ["MEMPLAN_DATA"]) / "measured" / "compiled_budget.csv"
    with path.open(encoding="utf-8", newline="") as file:
        return [_peak(row) for row in csv.DictReader(file)]


def _peak(row: dict[str, str]) -> Peak:
    backend = "eager" if row["backend"] == _EAGER else row["backend"]
    job = Job(model=row["model"], scale=int(row["scale"]), backend=backend, budget=row["activation_memory_budget"])
    first, settled = int(row["max_memory_allocated_first"]), int(row["max_memory_allocated_settled"])
    return Peak(job=job, first=first, settled=settled, before=int(row["resident_before"]))


class Prediction(NamedTuple):
    """Peaks of a job, in bytes."""

    allocated: int
    """What torch counts as allocated: rests of blocks that are not split among it."""
    requested: int
    """What is asked for at once."""


def predicted(job: Job) -> Prediction:
    """Both peaks.

    Raises:
        RuntimeError: The command failed.
    """
    target = HERE / "compiled_budget" / f"program.py:{job.model.title()}(scale={job.scale})"
    words = ["--gpu", "gtx-1650", "--batch-size", "2", "--seq-len", str(128 * job.scale), "--compile", job.backend]
    done = subprocess.run(
        [sys.executable, "-m", "memplan", "estimate", str(target), *words, "--json"],
        env={**os.environ, "MEMPLAN_BUDGET": job.budget, "PYTHONHASHSEED": "0"},
        check=False,
        capture_output=True,
        text=True,
    )
    if not done.stdout.strip():
        raise RuntimeError(done.stderr.strip()[-300:])
    peak = json.loads(done.stdout)["peak"]
    return Prediction(int(peak["allocated_bytes"]), int(peak["requested_bytes"]))


def table(rows: Sequence[Peak], answers: dict[str, Prediction]) -> Iterator[str]:
    """What is printed."""
    yield f"{'job':<22}{'measured':>15}{'predicted':>15}{'off':>10}{'asked for':>17}"
    errors = []
    for row in rows:
        answer = answers.get(row.job.name)
        if answer is None:
            yield f"{row.job.name:<22}{row.settled:>15,}{'not run':>15}"
            continue
        errors.append(100 * (answer.allocated / row.settled - 1))
        figures = f"{row.settled:>15,}{answer.allocated:>15,}{errors[-1]:>+9.3f} %{answer.requested:>16,}"
        yield f"{row.job.name:<22}{figures}"
    if errors:
        within = sum(abs(error) <= TOLERANCE for error in errors)
        middle, worst = median(map(abs, errors)), max(errors, key=abs)
        yield f"{within} of {len(rows)} within {TOLERANCE} %"
        yield f"of {len(errors)} that were run: median {middle:.3f} %, worst {worst:+.3f} %"


def kept(path: Path = KEPT) -> dict[str, Prediction]:
    """Name of a job → predicted peaks, of earlier runs."""
    if not path.exists():
        return {}
    with path.open(encoding="utf-8", newline="") as file:
        rows = csv.DictReader(file)
        return {row["job"]: Prediction(int(row["allocated_bytes"]), int(row["requested_bytes"])) for row in rows}


def keep(answers: dict[str, Prediction], path: Path = KEPT) -> None:
    """Write all predictions."""
    with path.open("w", encoding="utf-8", newline="") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(["job", "allocated_bytes", "requested_bytes"])
        writer.writerows((name, *answer) for name, answer in sorted(answers.items()))


def main() -> None:
    """Run, write and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", nargs="+", default=[], help="jobs with these words in their names")
    options = parser.parse_args()
    rows = peaks()
    answers = kept()
    for job in dict.fromkeys(row.job for row in rows):
        if job.name in answers or not all(word in job.name.split() for word in options.only):
            continue
        started = time.perf_counter()
        try:
            answer = predicted(job)
        except RuntimeError as error:
            print(f"{job.name}: {error}", file=sys.stderr)
            continue
        answers = {**kept(), job.name: answer}
        keep(answers)
        print(f"{job.name}: {answer.allocated} ({time.perf_counter() - started:.0f} s)", file=sys.stderr, flush=True)
    head = (
        f"{time.strftime('%Y-%m-%d')}, traced without a GPU by torch {version('torch')}, transformers "
        f"{version('transformers')}; measured on a GTX 1650 with torch 2.14.0 (siddddd17/ackaudit): settled peak of "
        "max_memory_allocated, bytes"
    )
    lines = "\n".join([head, "", *table(rows, answers)]) + "\n"
    RESULTS.write_text(lines, encoding="utf-8")
    print(lines, end="")


if __name__ == "__main__":
    main()
