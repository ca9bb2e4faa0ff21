"""Steps of presets and examples as one arena: beside the least possible, other planners and the caching allocator."""

import csv
import time
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Literal

import reuse_baselines

from memplan.errors import MemplanError
from memplan.hardware.catalog import load_profile
from memplan.job.presets.catalog import list_presets
from memplan.job.spec import FileTarget, JobSpec, PresetTarget
from memplan.plan.reuse import ilp, portfolio
from memplan.plan.reuse.from_job import gather_job
from memplan.plan.reuse.records import FeasiblePlacement, OptimalPlacement, Problem
from memplan.units import format_bytes

RESULTS = Path(__file__).parent / "results" / "reuse_steps.csv"
EXAMPLES = Path(__file__).parents[1] / "examples"
GPU = "h100-80g"
SECONDS, ILP_SECONDS = 10.0, 10.0
MOST_FOR_ILP = 60
"""Buffers up to which the integer program is asked; beyond, ten seconds bring nothing."""
GOAL = 1.005
Mode = Literal["train", "inference"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """One step."""

    target: str
    mode: str
    buffers: int = 0
    arena: int = 0
    bound: int = 0
    exact_size: int = 0
    greedy_by_size: int = 0
    ilp: int = 0
    """0: not asked, or nothing found."""
    persistent: int = 0
    reserved: int = 0
    solve_seconds: float = 0.0
    ending: str = ""
    problem: str = ""
    """Why there is no answer."""


def run(only: Sequence[str], results: Path) -> None:
    """Run what the file does not have, and write it down row by row."""
    have = {(row.target, row.mode) for row in read(results)}
    for target in only or [*(f"preset:{preset.name}" for preset in list_presets()), *_examples()]:
        for mode in ("train", "inference"):
            if (target, mode) not in have:
                row = _row(target, mode)
                _append(row, results)
                print(_line(row), flush=True)


def _examples() -> list[str]:
    return [f"examples/{path.name}" for path in sorted(EXAMPLES.glob("*.py"))]


def _row(target: str, mode: Mode) -> Row:
    name = target.removeprefix("preset:")
    parsed = PresetTarget(name=name) if name != target else FileTarget(path=EXAMPLES / Path(target).name, factory=None)
    try:
        # In this process, unlike the command: libraries are imported once for all rows.
        gathered = gather_job(JobSpec(target=parsed, mode=mode), load_profile(GPU))
    except MemplanError as error:
        return Row(target=target, mode=mode, problem=error.what[:100])
    started = time.perf_counter()
    result = portfolio.solve(gathered.problem, time_limit=SECONDS)
    seconds = time.perf_counter() - started
    assert isinstance(result, OptimalPlacement | FeasiblePlacement), result
    assert gathered.surroundings is not None
    buffers = gathered.problem.buffers
    return Row(
        target=target,
        mode=mode,
        buffers=len(buffers),
        arena=result.placement.height,
        bound=result.placement.height if isinstance(result, OptimalPlacement) else result.bound,
        exact_size=reuse_baselines.exact_size_reuse(buffers),
        greedy_by_size=reuse_baselines.greedy_by_size(buffers),
        ilp=_ilp(gathered.problem),
        persistent=gathered.surroundings.persistent_bytes + gathered.surroundings.outside_bytes,
        reserved=gathered.surroundings.reserved_bytes,
        solve_seconds=round(seconds, 2),
        ending=type(result).__name__,
    )


def _ilp(problem: Problem) -> int:
    if len(problem.buffers) > MOST_FOR_ILP:
        return 0
    result = ilp.solve(problem, time_limit=ILP_SECONDS)
    return result.placement.height if isinstance(result, OptimalPlacement | FeasiblePlacement) else 0


def read(results: Path) -> list[Row]:
    """What stands in the file."""
    if not results.is_file():
        return []
    kinds = {field.name: field.type for field in fields(Row)}
    with results.open(newline="", encoding="utf-8") as file:
        return [Row(**{key: _value(kinds[key], value) for key, value in row.items()}) for row in csv.DictReader(file)]


def _value(kind: object, value: str) -> object:
    return int(value) if kind in {int, "int"} else float(value) if kind in {float, "float"} else value


def _append(row: Row, results: Path) -> None:
    is_new = not results.is_file()
    with results.open("a", newline="", encoding="utf-8") as file:
        writer = csv.DictWriter(file, [field.name for field in fields(Row)], lineterminator="\n")
        if is_new:
            writer.writeheader()
        writer.writerow(asdict(row))


def lines(rows: Sequence[Row]) -> Iterator[str]:
    """The table: heights over the bound, and what is saved of the reserved peak."""
    yield (
        f"{'step':44}{'mode':>10}{'buffers':>8}{'arena':>12}{'/ bound':>9}{'by size':>9}{'exact':>8}{'ILP':>8}"
        f"{'reserved':>12}{'saved':>8}"
    )
    for row in rows:
        yield _line(row)
    done = [row for row in rows if row.bound]
    if not done:
        return
    for mode in ("train", "inference"):
        ratios = sorted(row.arena / row.bound for row in done if row.mode == mode)
        good = sum(ratio <= GOAL for ratio in ratios)
        if ratios:
            ends = f"median {ratios[len(ratios) // 2]:.6f}, worst {ratios[-1]:.6f}"
            yield f"{mode}: {good} of {len(ratios)} within {GOAL:g} of the bound, {ends}"
    yield f"{len(rows) - len(done)} without an answer"


def _line(row: Row) -> str:
    if not row.bound:
        return f"{row.target:44}{row.mode:>10}  {row.problem}"
    against = "".join(f"{_ratio(size, row.bound):>{width}}" for size, width in _compared(row))
    saved = 100 * (1 - (row.arena + row.persistent) / row.reserved) if row.reserved else 0.0
    return (
        f"{row.target:44}{row.mode:>10}{row.buffers:>8}"
        f"{format_bytes(row.arena):>12}{row.arena / row.bound:>9.4f}{against}"
        f"{format_bytes(row.reserved):>12}{saved:>6.1f} %"
    )


def _compared(row: Row) -> tuple[tuple[int, int], ...]:
    return (row.greedy_by_size, 9), (row.exact_size, 8), (row.ilp, 8)


def _ratio(size: int, bound: int) -> str:
    return f"{size / bound:.3f}" if size else "—"
