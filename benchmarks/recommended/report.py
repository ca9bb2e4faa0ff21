"""Rows as text, and as CSV."""

import csv
import os
import platform
import time
from collections.abc import Iterator, Sequence
from dataclasses import asdict, fields
from importlib.metadata import version
from pathlib import Path

from recommended.rows import NOTHING, Row

_ANSWERS = {True: "yes", False: "NO", None: "-"}


def text(rows: Sequence[Row]) -> str:
    """The whole page."""
    return "\n".join([*head(), "", *lines(rows), "", *conclusion(rows), ""])


def machine() -> Iterator[str]:
    """What ran."""
    load = ", ".join(f"{value:.1f}" for value in os.getloadavg())
    releases = ", ".join(f"{name} {version(name)}" for name in ("torch", "transformers", "peft", "memplan"))
    yield f"{time.strftime('%Y-%m-%d')}, {platform.machine()} without a GPU, {os.cpu_count()} cores (load {load}),"
    yield f"Python {platform.python_version()}, {releases}"


def head() -> Iterator[str]:
    """What ran, and what columns mean."""
    yield from machine()
    yield "predicted: device bytes in the setup that recommend wrote. loaded: by the framework's own reader, which"
    yield "understood what the setup says. again: device bytes of the emitted file in a fresh process. equal: device,"
    yield "reserved and allocated bytes, all three to the byte. beside: options that the file has no word for."
    yield "torch, fsdp2: the code runs inside a target file. torchtitan has models of its own: nothing is traced again."
    yield "In brackets: the whole search by two processes. Behind a file: seconds of its trace. The machine did other"
    yield "work at the same time (its load above), so that budgets ended after few traces."


def lines(rows: Sequence[Row]) -> Iterator[str]:
    """Each job with its winner, then its files."""
    last = ""
    for row in rows:
        if row.job != last:
            yield from _job(row)
        last = row.job
        if row.framework:
            yield _file(row)


def _job(row: Row) -> Iterator[str]:
    ended = {"complete": "complete", "budget": f"out of its {row.budget} s"}.get(row.ended, row.ended)
    yield f"{row.job}: memplan recommend {row.typed}"
    reached = " of what the search reached" if row.winner == NOTHING and row.ended != "complete" else ""
    figures = {" s": row.search_seconds, " s CPU": row.search_cpu_seconds, " traces": row.traces}
    spent = [f"{figure:.0f}{unit}" for unit, figure in figures.items() if figure is not None]
    yield f"  {row.winner or row.problem}{reached}  ({', '.join([*spent, ended])})"
    yield from (f"    would fit with {each}" for each in row.remedies.split("; ") if each)


def _file(row: Row) -> str:
    is_loaded = "yes" if row.loaded and not row.problem.startswith("understood") else "NO"
    seconds = f"{row.trace_seconds:6.1f} s" if row.trace_seconds is not None else " " * 8
    said = "; ".join(part for part in (row.beside and f"beside: {row.beside}", row.problem) if part)
    return (
        f"  {row.framework:11} {row.loaded:22} loaded {is_loaded:4} predicted {_size(row.predicted_device)}  "
        f"again {_size(row.device)}  equal {_ANSWERS[row.equal]:4}{seconds}  {said}"
    ).rstrip()


def _size(value: int | None) -> str:
    return f"{'-':>14}" if value is None else f"{value:>14,}"


def conclusion(rows: Sequence[Row]) -> Iterator[str]:
    """How many."""
    files = [row for row in rows if row.framework]
    traced = [row for row in files if row.equal is not None]
    jobs = {row.job for row in rows}
    without = {row.job for row in rows if row.winner == NOTHING}
    yield f"{len(jobs)} jobs, {len(without)} of which fit in no way that was reached"
    yield f"{len(files)} files emitted for, {sum(bool(row.loaded) for row in files)} loaded by their framework"
    yield f"{len(traced)} traced again, {sum(bool(row.equal) for row in traced)} equal to the byte"
    apart = [row for row in traced if not row.equal]
    for row in apart:
        off = (row.device or 0) - (row.predicted_device or 0)
        yield f"  not equal: {row.job}, {row.framework}: device {off:+,} bytes"


def write_csv(path: Path, rows: Sequence[Row]) -> None:
    """All figures."""
    with path.open("w", encoding="utf-8", newline="") as file:
        writer = csv.DictWriter(file, [*(field.name for field in fields(Row)), "equal"], lineterminator="\n")
        writer.writeheader()
        writer.writerows(asdict(row) | {"equal": row.equal} for row in rows)
