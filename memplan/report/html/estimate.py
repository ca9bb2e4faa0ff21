"""The page of ``memplan estimate -f html``: one job on one or several GPUs."""

from collections.abc import Collection, Sequence
from typing import Any

from memplan.measure.records import Estimate, RecordedEstimate, Verdict
from memplan.report.estimate.json import DOCUMENT, report_of
from memplan.report.estimate.verdict import SYMBOLS, statement
from memplan.report.html.page import assemble
from memplan.report.html.view import anchors, article
from memplan.units import format_bytes

_HEADS = ("Verdict in figures", "Device peak", "Usable")


def render(results: Sequence[RecordedEstimate]) -> str:
    """Write estimates of jobs as a page that needs nothing else; those without a digest without their history."""
    first = results[0].estimate
    keys = anchors([result.estimate.gpu.name for result in results])
    estimates = [result.estimate for result in results]
    jobs = {estimate.target for estimate in estimates}
    several, mixed = len(results) > 1, len(jobs) > 1
    context = {
        "title": _title(results, jobs),
        "kind": "estimate",
        "lines": [],
        "notes": [],
        "failures": [],
        "versions": {"memplan": first.memplan_version, "torch": first.torch_version},
        "heads": ("Job and GPU" if mixed else "GPU", *_HEADS) if several else (),
        "text_heads": 2,
        "optional_head": 2,
        "rows": [_row(*each, mixed) for each in zip(keys, estimates, strict=True)] if several else [],
        "articles": [
            {
                "key": key,
                "index": index,
                "heading": _named(result.estimate, mixed) if mixed else result.estimate.gpu.title,
                "view": article(key, result.estimate, result.digest),
            }
            for index, (key, result) in enumerate(zip(keys, results, strict=True))
        ],
    }
    report = report_of(estimates, [result.digest for result in results])
    return assemble(context, DOCUMENT.plain(report))


def _title(results: Sequence[RecordedEstimate], jobs: Collection[str]) -> str:
    first = results[0].estimate
    if len(jobs) > 1:
        return f"{len(jobs)} jobs"
    return first.target if len(results) > 1 else f"{first.target} on {first.gpu.title or first.gpu.name}"


def _named(estimate: Estimate, with_job: bool) -> str:
    return f"{estimate.target} · {estimate.gpu.name}" if with_job else estimate.gpu.name


def _row(key: str, estimate: Estimate, with_job: bool) -> dict[str, Any]:
    known = estimate.verdict is not Verdict.UNKNOWN
    usable = estimate.gpu.usable_bytes
    peak = format_bytes(estimate.peak.device_bytes) if known else ""
    return {
        "key": key,
        "kind": str(estimate.verdict),
        "symbol": SYMBOLS[estimate.verdict],
        "word": estimate.verdict.upper(),
        "cells": (_named(estimate, with_job), statement(estimate), peak, format_bytes(usable) if usable else ""),
    }
