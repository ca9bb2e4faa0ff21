"""Residuals of every run that was measured, from the committed tables.

* ``results/accuracy*.csv``: published runs (``accuracy.py``);
* ``results/sharding*.csv``: published runs on several GPUs (``sharding.py``), and which rows of the former were such;
* ``results/sharding.txt``: one of them as another release of torch traces it, which is as far off as nobody knows which
  release runs;
* ``results/torchtitan*.csv``: published runs of torchtitan by its own programs (``torchtitan.py``);
* ``results/cpu_truth*.txt``: training on a CPU (``cpu_truth.py``);
* ``gpu/results/*.json``: runs on a GPU at hand (``gpu/run.py``), beside the prediction of that day.
"""

import csv
import json
import math
import re
from collections.abc import Container, Iterable, Iterator
from pathlib import Path

from conformal import Residual

HERE = Path(__file__).parent
FIGURES = ("requested", "allocated", "reserved")
"""What is measured of an allocator."""
UNSAID = ", chosen"
"""Behind the torch that traced a run of ``torchtitan.py``, where nobody says which one ran."""
NOT_SHARED = ("", "one GPU")
"""``kind`` of a row of ``sharding.csv`` that was left out, or that one GPU ran."""
_TORCH = re.compile(r"torch (\d+(?:\.\d+)+)")
RECURRENT = frozenset({"gru", "lstm", "lstm-mixed"})
"""Workloads that were called ``full`` on the day of their run: what cuDNN takes for them was not known to be open."""
_OTHER_RELEASE = re.compile(r"^(\S+) otherwise: .*, ([+-][\d.]+) % \(torch ([\d.]+)", re.MULTILINE)
_CPU_ROW = re.compile(r"^(\S+) +([\d,]+) +([\d,]+) +[+-][\d.]+%", re.MULTILINE)


def read_residuals(folder: Path = HERE) -> tuple[Residual, ...]:
    """All residuals of the committed tables, in the order of file names and rows."""
    found: list[Residual] = []
    shared = _rows(folder, "sharding*.csv")
    on_several = {row["id"] for row in shared if row["kind"] not in NOT_SHARED}
    found += published(_rows(folder, "accuracy*.csv"), on_several)
    found += sharded(shared)
    for path in sorted((folder / "results").glob("sharding.txt")):
        found += by_another_release(path.read_text(encoding="utf-8"), shared)
    found += by_programs(_rows(folder, "torchtitan*.csv"))
    for path in sorted((folder / "results").glob("cpu_truth*.txt")):
        found += cpu_truth(path.read_text(encoding="utf-8"), source=path.stem)
    for path in sorted((folder / "gpu" / "results").glob("*.json")):
        found += gpu_runs(path.read_text(encoding="utf-8"), name=path.stem)
    return tuple(found)


def _rows(folder: Path, pattern: str) -> list[dict[str, str]]:
    rows: list[dict[str, str]] = []
    for path in sorted((folder / "results").glob(pattern)):
        with path.open(encoding="utf-8", newline="") as file:
            rows += csv.DictReader(file)
    return rows


def published(rows: Iterable[dict[str, str]], on_several: Container[str] = ()) -> Iterator[Residual]:
    """Rows of ``accuracy.csv`` (``published.outcomes.Outcome``) that have a prediction.

    Args:
        rows: Of the file.
        on_several: Ids of runs that several GPUs shared, which makes them another class of workload.
    """
    for row in rows:
        figure = row["metric"]
        if not row["failure"]:
            value = math.log(int(row["measured"]) / int(row[figure]))
            workload = "sharded" if row["id"] in on_several else row["workload"]
            yield Residual(id=row["id"], source=row["source"], workload=workload, figure=figure, value=value)


def sharded(rows: Iterable[dict[str, str]]) -> Iterator[Residual]:
    """Rows of ``sharding.csv`` that were predicted for it alone, under the allocator that their launcher sets."""
    for row in rows:
        if row["kind"] in NOT_SHARED or row["carried"] == "True" or row["failure"]:
            continue
        figure = row["metric"]
        predicted = row[f"reserved_{row['allocator'] or 'native'}"] if figure == "reserved" else row["allocated"]
        value = math.log(int(row["measured"]) / int(predicted))
        yield Residual(id=row["id"], source=row["source"], workload="sharded", figure=figure, value=value)


def by_programs(rows: Iterable[dict[str, str]]) -> Iterator[Residual]:
    """Rows of ``torchtitan.csv`` by a known torch, on NVIDIA's cards: jobs on AMD's are a class of their own."""
    for row in rows:
        if row["gpu"].startswith("mi") or row["torch"].endswith(UNSAID):
            continue
        value = math.log(float(row["published_gib"]) / float(row["predicted_gib"]))
        yield Residual(id=row["id"], source=row["source"], workload="sharded", figure="reserved", value=value)


def by_another_release(text: str, rows: Iterable[dict[str, str]]) -> Iterator[Residual]:
    """What ``sharding.py`` says of rows under another release of torch than the one that ran."""
    sources = {row["id"]: row["source"] for row in rows}
    for name, error, torch in _OTHER_RELEASE.findall(text):
        value = -math.log1p(float(error) / 100)
        yield Residual(
            id=f"{name}, torch {torch}", source=sources[name], workload="sharded", figure="reserved", value=value
        )


def cpu_truth(text: str, source: str) -> Iterator[Residual]:
    """Rows of ``cpu_truth.py``: name, real peak, predicted peak. A CPU rounds nothing, so they count as allocated."""
    torch = _TORCH.search(text)
    for name, measured, predicted in _CPU_ROW.findall(text):
        value = math.log(_count(measured) / _count(predicted))
        yield Residual(
            id=f"{source}-{name}",
            source=source,
            workload="cpu",
            figure="allocated",
            value=value,
            torch=torch[1] if torch else "",
        )


def _count(text: str) -> int:
    return int(text.replace(",", ""))


def gpu_runs(text: str, name: str) -> Iterator[Residual]:
    """Workloads of ``gpu/run.py`` with prediction and measurement; those of tries in small are left out.

    All files are one source: the same workloads on another card.
    """
    content = json.loads(text)
    if content["tiny"] or content["profile"]["kind"] != "cuda":
        return
    for workload_name, run in content["workloads"].items():
        if "predicted" not in run or "measured" not in run:
            continue
        workload = "cnn" if workload_name in RECURRENT else run["estimate"]["peak"]["interval"]["class"]
        for figure in FIGURES:
            measured, predicted = (run[side][f"{figure}_bytes"] for side in ("measured", "predicted"))
            if not measured or not predicted:
                continue
            value = math.log(measured / predicted)
            yield Residual(
                id=f"{name}-{workload_name}",
                source="benchmarks/gpu",
                workload=workload,
                figure=figure,
                value=value,
                torch=content["environment"]["packages"]["torch"],
            )
