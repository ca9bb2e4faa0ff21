"""What the gate found as JSON, and back: integers are bytes, keys are sorted, minor versions only add.

Each row carries its estimate and the baseline's in the contract of ``estimate``, so that ``diff``, ``report`` and
``--baseline`` read this, too.
"""

import json
from collections.abc import Mapping
from functools import partial
from importlib.resources import files
from pathlib import Path
from typing import Any

from memplan.errors import UsageError
from memplan.findings.records import Finding
from memplan.gate.compare import compare
from memplan.gate.records import GateResult, Growth, Row
from memplan.measure.digest_document import read_timeline
from memplan.measure.digest_records import HistoryDigest
from memplan.measure.document import SCHEMA_VERSION, document
from memplan.measure.read import checked_version, read_estimate, validated
from memplan.report.estimate.json import with_timeline


def render(result: GateResult) -> str:
    """The JSON report."""
    return json.dumps(gate_document(result), sort_keys=True, indent=2, allow_nan=False)


def gate_document(result: GateResult) -> dict[str, Any]:
    """The gate's answer as plain data."""
    return {
        "schema_version": SCHEMA_VERSION,
        "command": "gate",
        "project": result.project.as_posix(),
        "baseline": result.baseline.as_posix() if result.baseline else None,
        "exit_code": int(result.exit_code),
        "rows": [_row(row, result.digests.get((row.job, row.gpu))) for row in result.rows],
        "notes": list(result.notes),
        "timings": {"seconds": result.seconds},
    }


def read_gate(content: object, where: str | None = None) -> GateResult:
    """Read what ``render`` wrote.

    Args:
        content: What JSON holds.
        where: The file, for errors.

    Raises:
        UsageError: It is no result of the gate of this major version, or broken.
    """
    found = checked_version(content, where)
    if found.get("command") != "gate":
        raise UsageError(f"no result of the gate, but of {found.get('command')!r}", where=where)
    result: GateResult = validated(GateResult, lambda: _fields(found, where), where)
    return result


def schema() -> Mapping[str, Any]:
    """The JSON Schema that every report obeys; its estimates obey ``estimate-1.0.json``."""
    loaded: dict[str, Any] = json.loads((files("memplan.report") / "schema" / "gate-1.0.json").read_text("utf-8"))
    return loaded


def _row(row: Row, digest: HistoryDigest | None) -> dict[str, Any]:
    comparison = row.comparison
    return {
        "job": row.job,
        "gpu": row.gpu,
        "outcome": row.outcome,
        "limit_bytes": row.limit,
        "informational": row.informational,
        "cached": row.cached,
        "findings": [_finding(finding) for finding in row.findings],
        "estimate": with_timeline(row.estimate, digest) if row.estimate else None,
        "baseline": document(comparison.before) if comparison else None,
        "grown_bytes": comparison.grown if comparison else None,
        "growth": [_growth(each) for each in comparison.growth] if comparison else None,
    }


def _finding(finding: Finding) -> dict[str, Any]:
    return {
        "code": finding.code,
        "level": finding.severity,
        "message": finding.message,
        "place": {"file": finding.place.file, "line": finding.place.line},
        "hint": finding.fix,
    }


def _growth(growth: Growth) -> dict[str, Any]:
    return {
        "module": growth.module,
        "category": growth.category,
        "source": growth.source,
        "before_bytes": growth.before,
        "after_bytes": growth.after,
    }


def _fields(content: Mapping[str, Any], where: str | None) -> dict[str, Any]:
    return {
        "project": Path(content["project"]),
        "baseline": Path(content["baseline"]) if content["baseline"] is not None else None,
        "rows": [_row_fields(row, where) for row in content["rows"]],
        "notes": content["notes"],
        "seconds": content["timings"]["seconds"],
        "digests": {
            (row["job"], row["gpu"]): read_timeline(row["estimate"]["timeline"], where)
            for row in content["rows"]
            if row["estimate"] is not None and "timeline" in row["estimate"]
        },
    }


def _row_fields(row: Mapping[str, Any], where: str | None) -> Row:
    estimate = read_estimate(row["estimate"], where) if row["estimate"] is not None else None
    before = read_estimate(row["baseline"], where) if row["baseline"] is not None else None
    return Row(
        job=row["job"],
        gpu=row["gpu"],
        outcome=row["outcome"],
        estimate=estimate,
        # Growth follows from the two: the file's own list is for other readers.
        comparison=compare(before, estimate) if before and estimate else None,
        findings=tuple(validated(Finding, partial(_finding_fields, each), where) for each in row["findings"]),
        limit=row["limit_bytes"],
        informational=row["informational"],
        cached=row["cached"],
    )


def _finding_fields(content: Mapping[str, Any]) -> dict[str, Any]:
    return {
        "code": content["code"],
        "severity": content["level"],
        "message": content["message"],
        "place": content["place"],
        "fix": content.get("hint", ""),
    }
