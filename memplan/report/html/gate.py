"""The page of ``memplan gate -f html``: a verdict for every job and GPU, and an article with the figures of each."""

from dataclasses import dataclass
from typing import Any

from memplan.findings.records import Finding
from memplan.gate.records import GateResult, Row
from memplan.report.gate.findings import peak
from memplan.report.gate.growth import grown
from memplan.report.gate.headline import headline
from memplan.report.gate.json import DOCUMENT, report_of
from memplan.report.gate.text import STATES, state
from memplan.report.html.growth import GrowthView, growth_view
from memplan.report.html.page import PageFrame, assemble
from memplan.report.html.view import anchors, article
from memplan.units import format_bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class RowView:
    """What a gate says of one job on one GPU, in words."""

    state: str
    """``passed``, ``warned``, ``failed`` or ``unknown``."""
    symbol: str
    """That stands for it."""
    word: str
    """That says it."""
    findings: tuple[Finding, ...]
    """Errors first."""
    growth: GrowthView
    """Since the baseline."""


def render(result: GateResult) -> str:
    """Write what the gate found as a page that needs nothing else; rows without a digest without timeline and map."""
    keys = anchors([f"{row.job}-{row.gpu}" for row in result.rows])
    shown = [(index, key, row, row.estimate) for index, (key, row) in enumerate(zip(keys, result.rows, strict=True))]
    first = next((row.estimate for row in result.rows if row.estimate), None)
    frame = PageFrame(
        kind="gate",
        title=headline(result),
        versions={"memplan": first.memplan_version if first else "", "torch": first.torch_version if first else ""},
    )
    context = {
        "lines": [f"{result.project}, " + (f"compared with {result.baseline}" if result.baseline else "no baseline")],
        "notes": result.notes,
        "heads": ("Job", "GPU", "Device peak", "Limit", "Since the baseline"),
        "text_heads": 2,
        "optional_head": 0,
        "rows": [_row(key, row) for _, key, row, _ in shown],
        "articles": [
            {
                "key": key,
                "index": index,
                "heading": f"{row.job} on {row.gpu}",
                "view": article(key, estimate, result.digests.get((row.job, row.gpu)), _view(row)),
            }
            for index, key, row, estimate in shown
            if estimate is not None
        ],
        "failures": [(row.job, row.gpu, row.findings) for row in result.rows if row.estimate is None],
    }
    return assemble(frame, context, DOCUMENT.plain(report_of(result)))


def _row(key: str, row: Row) -> dict[str, Any]:
    symbol, word, _ = STATES[state(row)]
    estimate, comparison = row.estimate, row.comparison
    limit = row.limit if row.limit is not None else estimate.gpu.usable_bytes if estimate else 0
    return {
        "key": key if estimate else "",
        "kind": state(row),
        "symbol": symbol,
        "word": word,
        "cells": (
            row.job,
            row.gpu,
            peak(row),
            format_bytes(limit) if limit else "",
            grown(comparison) if comparison and comparison.grown else "",
        ),
    }


def _view(row: Row) -> RowView:
    symbol, word, _ = STATES[state(row)]
    return RowView(
        state=state(row),
        symbol=symbol,
        word=word,
        findings=row.findings,
        growth=growth_view(row.comparison),
    )
