"""The way of one job: searched once, then for each framework emitted, loaded and traced again."""

import json
import re
import resource
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from recommended import commands
from recommended.jobs import Job

NOTHING = "NOTHING FITS"


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """One framework's file of one winner. Bytes and seconds; None where there is no such figure."""

    job: str
    typed: str
    """What ``memplan recommend`` was given."""
    winner: str
    """Its changes, or that nothing fits, or why there is no answer."""
    ended: str = ""
    """``complete``, or ``budget`` where the time ran out first."""
    budget: int | None = None
    """``--time-limit``, in seconds."""
    search_seconds: float | None = None
    search_cpu_seconds: float | None = None
    """Of all processes."""
    traces: int | None = None
    """How many configurations the search traced."""
    remedies: str = ""
    """Where nothing fits: what would, if more were allowed."""
    framework: str = ""
    """``--to``."""
    loaded: str = ""
    """Release of what loaded it and what it understood, or why it did not."""
    beside: str = ""
    """Options typed beside the file."""
    predicted_device: int | None = None
    predicted_reserved: int | None = None
    predicted_allocated: int | None = None
    device: int | None = None
    reserved: int | None = None
    allocated: int | None = None
    trace_seconds: float | None = None
    problem: str = ""
    """Why something is missing."""

    @property
    def equal(self) -> bool | None:
        """Are all three peaks the predicted ones? None where nothing was traced."""
        if self.device is None:
            return None
        predicted = (self.predicted_device, self.predicted_reserved, self.predicted_allocated)
        return predicted == (self.device, self.reserved, self.allocated)


def folder_of(name: str, work: Path) -> Path:
    """Where the files of a job are kept."""
    return work / re.sub(r"[^\w]+", "-", name).strip("-").lower()


def rows_of(job: Job, work: Path, each: Callable[..., Iterable[Row]], *, budget: int, processes: int) -> list[Row]:
    """All rows of a job.

    Args:
        job: What is asked.
        work: Where files of all jobs are kept.
        each: Like ``map``, perhaps several at once.
        budget: Seconds of the search.
        processes: Traces at once of the search.
    """
    folder = folder_of(job.name, work)
    folder.mkdir(parents=True, exist_ok=True)
    found = remembered(folder / "search.json", lambda: _searched(job, folder, budget, processes))
    start = {"job": job.name, "typed": " ".join(job.typed), **found}
    if not (folder / "setup.json").exists():
        return [Row(**start)]
    return list(each(lambda to: _row(start, folder, to), job.formats))


def remembered(file: Path, work: Callable[[], dict[str, Any]]) -> dict[str, Any]:
    """What a step gave, from its file where it ran before."""
    if not file.exists():
        file.write_text(json.dumps(work()), encoding="utf-8")
    found: dict[str, Any] = json.loads(file.read_text(encoding="utf-8"))
    return found


def _searched(job: Job, folder: Path, budget: int, processes: int) -> dict[str, Any]:
    more = ["--time-limit", str(budget), "--jobs", str(processes), "-o", "setup.json", "--json"]
    started, before = time.perf_counter(), _cpu_seconds()
    done = commands.run("recommend", *job.typed, *more, folder=folder)
    used = {"search_seconds": time.perf_counter() - started, "search_cpu_seconds": _cpu_seconds() - before}
    spent: dict[str, Any] = {"budget": budget, **used}
    if not done.out.startswith("{"):
        return spent | {"winner": "", "problem": done.said}
    (folder / "answer.json").write_text(done.out, encoding="utf-8")
    answer = json.loads(done.out)
    best = answer["best"]
    said = {"winner": _words(best) if best else NOTHING, "ended": answer["result"], "traces": answer["traces"]}
    said["remedies"] = "; ".join(
        f"--allow {','.join(each['allow'])}: {_words(each['configuration'])}" for each in answer["remedies"]
    )
    return spent | {name: _without(folder, each) if isinstance(each, str) else each for name, each in said.items()}


def _words(configuration: dict[str, Any]) -> str:
    return " ".join(configuration["changes"]) or "as given"


def _without(folder: Path, words: str) -> str:
    return words.replace(f"{folder}/", "")


def _cpu_seconds() -> float:
    """Of processes that were started here and have ended, theirs included."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def _row(start: dict[str, Any], folder: Path, to: str) -> Row:
    made = commands.load_setup(folder / "setup.json").predicted
    predicted = {
        "predicted_device": made.device_bytes,
        "predicted_reserved": made.reserved_bytes,
        "predicted_allocated": made.allocated_bytes,
    }
    found = remembered(folder / f"{to}.json", lambda: _carried_out(folder, to))
    name = found.pop("file", None)
    if name is not None:
        file = folder / to / name
        loaded = remembered(folder / f"{to}.loaded.json", lambda: commands.loaded(folder / "setup.json", to, file))
        found |= loaded
    return Row(**start, **predicted, framework=to, **found)


def _carried_out(folder: Path, to: str) -> dict[str, Any]:
    file, problem = commands.emitted(folder / "setup.json", to, folder / to)
    if file is None:
        return {"problem": problem}
    if to in commands.NO_READER:
        return {"file": file.name}
    started = time.perf_counter()
    options, peaks, problem = commands.again(folder / "setup.json", to, file)
    found = {name.removesuffix("_bytes"): size for name, size in peaks.items()}
    seconds = time.perf_counter() - started
    return {"file": file.name, "beside": " ".join(options), "trace_seconds": seconds, "problem": problem, **found}
