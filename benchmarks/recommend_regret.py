"""Is what ``memplan recommend`` says true of the whole space? Small jobs, every way of which is traced.

    python benchmarks/recommend_regret.py [--only WORD …] [--out benchmarks/results/recommend_regret.txt]
    python benchmarks/recommend_regret.py --live [--busy 4] [--budget 20] …

Each model's space is traced once, by itself. On devices of several sizes searches are then answered from those traces
(what fits is judged anew), with all traces that they like, and with a quarter of the ways. ``--live`` runs the searches
as a user does, in processes and in seconds, beside ``--busy`` processes that do nothing but compute.

Regret is how much slower what is recommended is than the best way of the space. Wrong is: regret where BEST is said, or
more than the gap that is said; NOTHING FITS where something fits, or with a peak that is not the least; fewest changes
that are not; a peak or verdict that ``estimate`` of the same setup refutes.
"""

import argparse
import multiprocessing
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

# As a script, Python finds what is beside it; memplan itself may be a checkout that is not installed.
sys.path.append(str(Path(__file__).parents[1]))

from recommended.regret_models import MODELS

from memplan.errors import MemplanError
from memplan.hardware.catalog import load_profile
from memplan.hardware.profile import GpuProfile
from memplan.job.spec import FileTarget, JobSpec
from memplan.measure.local import estimate_here
from memplan.plan.recommend.compose import recommend
from memplan.plan.recommend.records import Recommendation, Search
from tests.plan.recommend.brute import Traced, evaluated, judged, look_up, trace_all

PROFILE = load_profile("rtx-3060")
ROUNDING = 1e-9
UNLIMITED = 1e9


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """A model, and how it is searched."""

    name: str
    text: str
    """Target file."""
    options: dict[str, Any]
    """Fields of ``JobSpec``."""
    search: Search


def sizes_of(traced: Traced) -> Iterator[tuple[str, int]]:
    """Devices on which none, one, some, most and all of the ways fit."""
    highs = sorted({each.high_bytes for each in evaluated(traced)})
    shares = {"none": highs[0] - 1, "one": highs[0], "a third": highs[len(highs) // 3], "most": highs[-1] - 1}
    yield from (shares | {"all": highs[-1]}).items()


def wrong(answer: Recommendation, known: Traced) -> Iterator[str]:
    """Everything that an answer says and that is not so."""
    proof, told = answer.proof, answer.best
    fits = [each for each in evaluated(known) if each.fits]
    best = min((each.time.total for each in fits), default=None)
    if told is not None and best is None and told.candidate.spec.checkpoint in ("none", "full"):
        yield "something fits, but nothing does"
    if proof.ending == "nothing_fits":
        least = min((each.device_bytes for each in evaluated(known)), default=0)
        if best is not None:
            yield "nothing fits, but something does"
        if proof.least_bytes is not None and (
            proof.least_bytes > least or (proof.is_least_reached and proof.least_bytes != least)
        ):
            yield f"least peak {proof.least_bytes}, but {least}"
    regret = told.time.total / best - 1 if told is not None and best is not None else 0.0
    if proof.gap is not None and regret > proof.gap + ROUNDING:
        yield f"{proof.ending}: {regret:.2%} slower than the best, {proof.gap:.2%} said"
    if fits and proof.least_changes is not None and proof.least_changes > min(len(e.candidate.changes) for e in fits):
        yield "fewest changes are not the fewest"


def refuted(answer: Recommendation, profile: GpuProfile) -> Iterator[str]:
    """Rows that ``estimate`` does not say the same of."""
    for row in answer.rows[:2]:
        (alone,) = estimate_here(row.candidate.spec, [profile], advice=False)
        same = (alone.peak.device_bytes, alone.peak.high_bytes) == (row.device_bytes, row.high_bytes)
        if not same or alone.verdict.value != "fits":
            yield f"estimate says {alone.peak.device_bytes}, {alone.verdict.value} of {row.candidate.words}"


def line(names: tuple[str, str, str], answer: Recommendation, known: Traced, seconds: float) -> str:
    """One row of the table."""
    fits = [each.time.total for each in evaluated(known) if each.fits]
    regret = f"{answer.best.time.total / min(fits) - 1:.2%}" if answer.best is not None and fits else "-"
    gap = "-" if answer.proof.gap is None else f"{answer.proof.gap:.1%}"
    proved = f"{answer.proof.proved}/{answer.proof.ways}"
    job, size, mode = names
    figures = f"{gap:>9}{regret:>9}{seconds:8.1f}"
    return f"{job:14}{size:9}{mode:9}{answer.traces:7}{proved:>10}  {answer.proof.ending:15}{figures}"


HEAD = f"{'job':14}{'fits':9}{'budget':9}{'traced':>7}{'proved':>10}  {'ending':15}{'gap':>9}{'regret':>9}{'s':>8}"


@contextmanager
def busy(count: int) -> Iterator[None]:
    """Processes that compute and do nothing else, for as long as this lasts."""
    found = [multiprocessing.Process(target=_compute, daemon=True) for _ in range(count)]
    for each in found:
        each.start()
    try:
        yield
    finally:
        for each in found:
            each.kill()


def _compute() -> None:
    while True:
        sum(range(100_000))


def run(job: Job, folder: Path, asked: argparse.Namespace, say: Callable[[str], None]) -> tuple[int, int]:
    """Search one job in every way that is asked for; how many answers, and how many of them wrong."""
    file = folder / f"{job.name}.py"
    file.write_text(job.text, encoding="utf-8")
    spec = JobSpec(target=FileTarget(path=file), **job.options)
    began = time.perf_counter()
    traced = trace_all(spec, PROFILE, job.search)
    say(f"{job.name:14}{len(traced)} ways, {len(evaluated(traced))} can be, {time.perf_counter() - began:.0f} s")
    answers = misses = 0
    for size, limit in sizes_of(traced):
        profile, known = replace(PROFILE, usable_bytes=limit), judged(traced, limit)
        modes: dict[str, Search] = {"all": job.search, "quarter": replace(job.search, budget_traces=len(traced) // 4)}
        if asked.live:
            modes = {f"{asked.budget:g} s": replace(job.search, budget_seconds=asked.budget, processes=2)}
            # A kernel's work space is no larger than the device.
            known = trace_all(spec, profile, job.search)
        for mode, search in modes.items():
            began = time.perf_counter()
            answer = recommend(spec, profile, search) if asked.live else look_up(known, spec, profile, search)
            seconds = time.perf_counter() - began
            told = [*wrong(answer, known), *(refuted(answer, profile) if size == "a third" else ())]
            answers, misses = answers + 1, misses + bool(told)
            say(line((job.name, size, mode), answer, known, seconds))
            for each in told:
                say(f"  WRONG: {each}")
    return answers, misses


def main() -> None:
    """Run all jobs and print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", nargs="*", default=[])
    parser.add_argument("--live", action="store_true")
    parser.add_argument("--busy", type=int, default=0)
    parser.add_argument("--budget", type=float, default=20.0)
    parser.add_argument("--out", type=Path)
    asked = parser.parse_args()
    lines: list[str] = []

    def say(text: str) -> None:
        lines.append(text)
        print(text, flush=True)

    say(HEAD)
    answers = misses = 0
    jobs = [Job(search=Search(budget_seconds=UNLIMITED, **search), **rest) for rest, search in MODELS]
    with tempfile.TemporaryDirectory() as folder, busy(asked.busy):
        for job in jobs:
            if asked.only and not any(word in job.name for word in asked.only):
                continue
            try:
                count, bad = run(job, Path(folder), asked, say)
            except MemplanError as error:
                say(f"{job.name:14}{error.what}")
                continue
            answers, misses = answers + count, misses + bad
    say(f"\n{answers} answers, {misses} with something wrong")
    if asked.out:
        asked.out.write_text("\n".join(lines) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
