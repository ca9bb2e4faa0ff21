"""The page of ``memplan estimate -f html``: one job on one or several GPUs, or the jobs of a saved file."""

from collections.abc import Sequence
from typing import Any

from memplan.measure.records import Estimate, RecordedEstimate, Verdict
from memplan.report.estimate.json import DOCUMENT, report_of
from memplan.report.estimate.verdict import SYMBOLS, statement
from memplan.report.html.page import PageFrame, assemble
from memplan.report.html.view import anchors, article
from memplan.units import format_bytes

_HEADS = ("Verdict in figures", "Device peak", "Usable")


def render(results: Sequence[RecordedEstimate]) -> str:
    """Write estimates of jobs as a page that needs nothing else; those without a digest without their history."""
    estimates = [result.estimate for result in results]
    first, several = estimates[0], len(estimates) > 1
    keys = anchors([estimate.gpu.name for estimate in estimates])
    jobs = {estimate.target for estimate in estimates}
    mixed = len(jobs) > 1
    names = [f"{each.target} · {each.gpu.name}" if mixed else each.gpu.name for each in estimates]
    of_one = first.target if several else f"{first.target} on {first.gpu.title or first.gpu.name}"
    frame = PageFrame(
        kind="estimate",
        title=f"{len(jobs)} jobs" if mixed else of_one,
        versions={"memplan": first.memplan_version, "torch": first.torch_version},
    )
    context = {
        "lines": [],
        "notes": [],
        "failures": [],
        "heads": ("Job and GPU" if mixed else "GPU", *_HEADS) if several else (),
        "text_heads": 2,
        "optional_head": 2,
        "rows": [_row(*each) for each in zip(keys, names, estimates, strict=True)] if several else [],
        "articles": [
            {
                "key": key,
                "index": index,
                "heading": name if mixed else result.estimate.gpu.title,
                "view": article(key, result.estimate, result.digest),
            }
            for index, (key, name, result) in enumerate(zip(keys, names, results, strict=True))
        ],
    }
    report = report_of(estimates, [result.digest for result in results])
    return assemble(frame, context, DOCUMENT.plain(report))


def _row(key: str, name: str, estimate: Estimate) -> dict[str, Any]:
    known = estimate.verdict is not Verdict.UNKNOWN
    usable = estimate.gpu.usable_bytes
    peak = format_bytes(estimate.peak.device_bytes) if known else ""
    return {
        "key": key,
        "kind": str(estimate.verdict),
        "symbol": SYMBOLS[estimate.verdict],
        "word": estimate.verdict.upper(),
        "cells": (name, statement(estimate), peak, format_bytes(usable) if usable else ""),
    }
