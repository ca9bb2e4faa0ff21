"""Hold today's predictions against results that were measured on GPUs: no GPU is needed.

    python benchmarks/gpu/compare.py [FILE ...] [--only NAME ...]

FILE is what ``run.py`` wrote; without one, all of ``benchmarks/gpu/results``. A row of the table is one workload on one
device: the errors of the peaks, and the share of the run's events that the predicted stream has in the same order and
with the same size. The traces are made with the torch at hand; what CUDA does below its operators
is that of the torch that the results were measured with.
"""

import argparse
import importlib.util
import json
import os
import statistics
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from unittest.mock import patch

if importlib.util.find_spec("memplan") is None:
    sys.path.insert(0, str(Path(__file__).parents[2]))

from packing import unpack
from workloads import WORKLOADS, Workload, set_size

from memplan.errors import MemplanError, UsageError
from memplan.hardware.catalog import load_profile
from memplan.hardware.profile import GpuProfile
from memplan.tracing.cuda.release import VARIABLE
from memplan.validate.compare import compare
from memplan.validate.compose import SCALAR_BYTES, predict
from memplan.validate.records import JobPrediction, Peaks

RESULTS = Path(__file__).parent / "results"
TOLERANCE: Mapping[str, float] = {"requested": 0.01, "allocated": 0.01, "reserved": 0.05}
"""Largest error of each figure, as a share, that docs/validate.md promises for a workload that is not excepted."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """One workload on one device."""

    name: str
    """The workload."""
    kind: str
    """Its class."""
    errors: Mapping[str, float]
    """Figure → predicted / measured - 1, where both are known."""
    share: float | None
    """Share of events that are the same; None where no stream was recorded."""
    held: bool = True
    """Do the intervals of what is allocated and reserved hold what was measured?"""
    failure: str = ""
    """Why there is no figure; empty if there are some."""

    def beyond(self, tolerance: Mapping[str, float] = TOLERANCE) -> tuple[str, ...]:
        """The figures that are further off than they may be."""
        return tuple(name for name, most in tolerance.items() if abs(self.errors.get(name, 0.0)) > most)


def load(path: Path) -> dict[str, Any]:
    """A file of results."""
    content: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    if content.get("format") != 1:
        raise SystemExit(f"{path} is no file of results of this version")
    return content


def profile_of(content: Mapping[str, Any]) -> GpuProfile:
    """The profile that the results were predicted with, as their device gave it."""
    fields = {name: value for name, value in content["profile"].items() if name != "note"}
    capability = fields["compute_capability"]
    fields |= {"compute_capability": tuple(capability) if capability else None, "aliases": tuple(fields["aliases"])}
    return GpuProfile(**fields)


def profile_today(content: Mapping[str, Any]) -> GpuProfile:
    """What memplan knows of the device today; a profile that was made of its driver's word stays as it was."""
    try:
        return load_profile(content["profile"]["name"])
    except UsageError:
        return profile_of(content)


def rows(content: Mapping[str, Any], only: Sequence[str] = ()) -> Iterator[Row]:
    """Predict every workload of a file that was measured, and compare."""
    set_size(tiny=content["tiny"])
    known = {workload.name: workload for workload in WORKLOADS}
    for name, found in content["workloads"].items():
        if "measured" in found and name in known and (not only or name in only):
            with patch.dict(os.environ, {VARIABLE: content["device"]["versions"]["torch"]}):
                compared = row(known[name], found, profile_today(content), tiny=content["tiny"])
            yield compared


def blind_rows(content: Mapping[str, Any]) -> Iterator[Row]:
    """What was predicted on the day of the run, before anything was learnt from it."""
    for name, found in content["workloads"].items():
        if "measured" in found:
            ours, theirs = found["predicted"], found["measured"]
            keys = [(each, f"{each}_bytes") for each in Peaks._fields]
            errors = {each: ours[key] / theirs[key] - 1 for each, key in keys if ours[key] and theirs[key]}
            yield Row(name=name, kind=found["kind"], errors=errors, share=None)


def row(workload: Workload, found: Mapping[str, Any], profile: GpuProfile, *, tiny: bool) -> Row:
    """One workload."""
    steps = len(found["stream"]["marks"]) if found.get("stream") else None
    try:
        prediction = predict(workload.spec(tiny=tiny), profile, steps=steps)
    except MemplanError as error:
        return Row(name=workload.name, kind=workload.kind, errors={}, share=None, failure=str(error).splitlines()[0])
    return Row(
        name=workload.name,
        kind=workload.kind,
        errors=_errors(prediction, found["measured"]),
        share=_share(prediction, found, profile),
        held=_held(prediction, found["measured"]),
    )


def _held(prediction: JobPrediction, measured: Mapping[str, int | None]) -> bool:
    peak = prediction.estimate.peak
    intervals = {"allocated_bytes": peak.allocated_interval, "reserved_bytes": peak.reserved_interval}
    pairs = ((ends, measured[name]) for name, ends in intervals.items())
    return all(not real or ends.low_bytes <= real <= ends.high_bytes for ends, real in pairs)


def _errors(prediction: JobPrediction, measured: Mapping[str, int | None]) -> dict[str, float]:
    peak = prediction.estimate.peak
    predicted = Peaks(peak.requested_bytes, peak.allocated_bytes, peak.reserved_bytes, peak.device_bytes)
    real = {name: measured[f"{name}_bytes"] for name in Peaks._fields}
    return {name: getattr(predicted, name) / figure - 1 for name, figure in real.items() if figure}


def _share(prediction: JobPrediction, found: Mapping[str, Any], profile: GpuProfile) -> float | None:
    if not found.get("stream"):
        return None
    ignored = SCALAR_BYTES if profile.kind == "cpu" else 0
    return compare(prediction.stream, unpack(found["stream"]), ignored_bytes=ignored).share


def line(each: Row) -> str:
    """A row of the table."""
    if each.failure:
        return f"{each.name:<30}  {each.failure[:100]}"
    figures = "".join(
        f"{100 * each.errors[name]:+9.3f}%" if name in each.errors else f"{'-':>10}" for name in Peaks._fields
    )
    share = f"{100 * each.share:9.3f}%" if each.share is not None else f"{'-':>10}"
    where = "" if each.held else ", outside of the interval"
    beyond = f"  beyond tolerance: {', '.join(each.beyond())}{where}" if each.beyond() else ""
    return f"{each.name:<30}{figures}{share}{beyond}"


def summary(found: Sequence[Row]) -> str:
    """Medians and worst cases."""
    parts = []
    for name in Peaks._fields:
        errors = [abs(each.errors[name]) for each in found if name in each.errors]
        if errors:
            none, within = errors.count(0.0), sum(each <= TOLERANCE.get(name, 0.05) for each in errors)
            middle, worst = 100 * statistics.median(errors), 100 * max(errors)
            parts.append(f"{name}: {none} exact, {within} within, median {middle:.3f} %, worst {worst:.3f} %")
    known = [each.share for each in found if each.share is not None]
    events = f", {known.count(1)} with the same events" if known else ""
    return f"{len(found)} workloads{events}; " + "; ".join(parts)


def main() -> None:
    """Print a table for each file."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("files", nargs="*", type=Path)
    parser.add_argument("--only", nargs="*", default=())
    options = parser.parse_args()
    for path in options.files or sorted(RESULTS.glob("*.json")):
        content = load(path)
        versions = content["device"]["versions"]
        print(f"{path.name}: {content['device']['name']}, {versions}, {content['environment']['date']}")
        print(f"{'workload':<30}{'requested':>10}{'allocated':>10}{'reserved':>10}{'device':>10}{'events':>10}")
        print(f"on the day: {summary(list(blind_rows(content)))}")
        found = []
        for each in rows(content, options.only):
            found.append(each)
            print(line(each), flush=True)
        print(summary(found) if found else "nothing was measured")


if __name__ == "__main__":
    main()
