"""Saved estimates, by job and GPU: what ``estimate -f json`` and ``gate -f json`` write, and baselines.

A baseline holds estimates without timings, so that the same figures are the same text on every machine::

    {"command": "baseline", "schema_version": "1.0",
     "jobs": {"llama-8b-sft": {"h100-80g": {…an estimate…}}}}
"""

import json
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from memplan.contract.document import SCHEMA_VERSION, of_version
from memplan.errors import UsageError
from memplan.files.documents import read_json
from memplan.files.read import UnreadableError
from memplan.job.setup_file import FORMAT as SETUP
from memplan.job.usercode import installed_part
from memplan.measure.digest_records import HistoryDigest
from memplan.measure.document import ESTIMATE, TIMELINE
from memplan.measure.records import Estimate, Verdict

Entries = Mapping[tuple[str, str], Estimate]
"""Job and GPU → estimate."""


def load_entries(path: Path) -> dict[tuple[str, str], Estimate]:
    """The estimates of a saved result; a job that only ``estimate`` knows is called by its target.

    Raises:
        UsageError: The file cannot be read, or is no such result.
    """
    return read_entries(load_content(path), str(path))


def load_content(path: Path) -> Mapping[str, Any]:
    """What a saved result holds.

    Raises:
        UsageError: The file cannot be read, is no JSON, or is none of memplan's results of this version.
    """
    try:
        content = read_json(path)
    except UnreadableError as error:
        is_snapshot = path.suffix in (".pickle", ".pkl")
        hint = f"memplan snapshot {path} reads CUDA memory snapshots" if is_snapshot else None
        raise UsageError(f"the file cannot be read: {error}", where=str(path), hint=hint) from error
    return of_version(content, str(path))


def read_entries(content: Mapping[str, Any], where: str) -> dict[tuple[str, str], Estimate]:
    """The estimates in what a saved result holds.

    Raises:
        UsageError: It holds no estimates, or broken ones.
    """
    try:
        found = list(_documents(content))
    except (TypeError, KeyError, AttributeError) as error:
        raise UsageError(f"its parts are not what they should be ({error})", where=where) from None
    if not found and content.get("command") not in ("baseline", "gate"):
        raise _without_estimates(content, where)
    estimates = [(job, ESTIMATE.read(each, f"{where}, {job}" if job else where)) for job, each in found]
    return {(job or estimate.target, estimate.gpu.name): estimate for job, estimate in estimates}


def _without_estimates(content: Mapping[str, Any], where: str) -> UsageError:
    """What a file is instead, and who reads it."""
    if content.get("format") == SETUP:
        hint = "estimate it with --config FILE; memplan emit writes it for a framework"
        return UsageError("this is a setup, which holds no estimates", where=where, hint=hint)
    if "blocks" in content and "command" not in content:
        hint = "estimate it with --checkpoint FILE; memplan.apply(model, FILE) applies it"
        return UsageError("this is a checkpoint plan, which holds no estimates", where=where, hint=hint)
    command = content.get("command")
    what = f"the result of memplan {command} holds no estimates" if isinstance(command, str) else "no result of memplan"
    return UsageError(what, where=where, hint="estimate -f json, gate -f json and baselines have some")


def read_digests(content: Mapping[str, Any], where: str) -> dict[tuple[str, str], HistoryDigest]:
    """The timelines of those estimates that ``read_entries`` has found and that have one (``--timeline``).

    Raises:
        UsageError: One is broken.
    """
    return {
        (job or each["target"], each["gpu"]["name"]): TIMELINE.read(each["timeline"], where)
        for job, each in _documents(content)
        if "timeline" in each
    }


def _documents(content: Mapping[str, Any]) -> "list[tuple[str, Mapping[str, Any]]]":
    """Name of the job, where there is one, and estimate as JSON holds it."""
    match content.get("command"):
        case "estimate":
            return [("", each) for each in content.get("estimates", [content])]
        case "gate":
            return [(row["job"], row["estimate"]) for row in content["rows"] if row["estimate"] is not None]
        case "baseline":
            return [(job, each) for job, gpus in content["jobs"].items() for each in gpus.values()]
        case _:
            return []


def render_baseline(entries: Entries) -> str:
    """A baseline as its file holds it: the same for the same figures, one line for each owner."""
    jobs: dict[str, dict[str, Any]] = {}
    for (job, gpu), estimate in entries.items():
        if estimate.verdict is not Verdict.UNKNOWN:
            jobs.setdefault(job, {})[gpu] = ESTIMATE.plain(_anywhere(estimate))
    return _lines({"schema_version": SCHEMA_VERSION, "command": "baseline", "jobs": jobs}) + "\n"


def _anywhere(estimate: Estimate) -> Estimate:
    """Without what differs from machine to machine: times, and where packages are installed."""
    return replace(
        estimate,
        timings={},
        peak=replace(estimate.peak, source=_portable(estimate.peak.source)),
        owners=tuple(replace(owner, source=_portable(owner.source)) for owner in estimate.owners),
    )


def _portable(source: str) -> str:
    """A source line as any machine calls it: a library's from its package on, another's by its file's name."""
    part = Path(installed_part(source))
    return part.name if part.is_absolute() else installed_part(source)


def _lines(value: Any, indent: str = "") -> str:
    """JSON with sorted keys, whose innermost objects and lists take one line each."""
    inside = indent + "  "
    match value:
        case dict() if any(isinstance(each, dict | list) for each in value.values()):
            parts = [f"{json.dumps(key)}: {_lines(value[key], inside)}" for key in sorted(value)]
            return "{\n" + ",\n".join(inside + part for part in parts) + f"\n{indent}}}"
        case list() if any(isinstance(each, dict | list) for each in value):
            return "[\n" + ",\n".join(inside + _lines(each, inside) for each in value) + f"\n{indent}]"
        case _:
            return json.dumps(value, sort_keys=True, allow_nan=False)
