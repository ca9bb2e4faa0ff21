"""The page of ``memplan gate -f html``: a verdict for every job and GPU, and an article with the figures of each."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from memplan.findings.records import Finding
from memplan.gate.records import Comparison, GateResult, Row
from memplan.report.draw.layout import source_line
from memplan.report.estimate.owners import TOP_LEVEL
from memplan.report.gate.findings import peak
from memplan.report.gate.growth import category_changes, change, grouped_growth, grown, share
from memplan.report.gate.headline import headline
from memplan.report.gate.json import DOCUMENT, report_of
from memplan.report.gate.text import STATES, state
from memplan.report.html.page import Frame, assemble
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
    grown: str
    """Since the baseline; empty where that has no figures."""
    categories: tuple[tuple[str, str, str, str], ...]
    """Category, before, after, change."""
    growth: tuple[tuple[str, str, str, str, str, str], ...]
    """Change, category, module, source, before, after; repeated blocks together."""


def render(result: GateResult) -> str:
    """Write what the gate found as a page that needs nothing else; rows without a digest without timeline and map."""
    keys = anchors([f"{row.job}-{row.gpu}" for row in result.rows])
    shown = [(index, key, row, row.estimate) for index, (key, row) in enumerate(zip(keys, result.rows, strict=True))]
    first = next((row.estimate for row in result.rows if row.estimate), None)
    frame = Frame(
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
    comparison = row.comparison
    symbol, word, _ = STATES[state(row)]
    return RowView(
        state=state(row),
        symbol=symbol,
        word=word,
        findings=row.findings,
        grown=f"{change(comparison.grown)} ({share(comparison)})" if comparison and comparison.growth else "",
        categories=tuple(_categories(comparison)) if comparison else (),
        growth=tuple(_growth(comparison)) if comparison else (),
    )


def _categories(comparison: Comparison) -> Iterator[tuple[str, str, str, str]]:
    for words, (before, after) in category_changes(comparison).items():
        yield words, format_bytes(before), format_bytes(after), change(after - before)


def _growth(comparison: Comparison) -> Iterator[tuple[str, str, str, str, str, str]]:
    for each in grouped_growth(comparison.growth):
        figures = (format_bytes(each.before), format_bytes(each.after))
        yield change(each.grown), each.category, each.module or TOP_LEVEL, source_line(each.source), *figures
