"""The page of ``memplan diff -f html``: what grew, and of every job by category and module."""

from memplan.gate.compare import Diff, RowChange
from memplan.report.gate.diff import answer, row_cells
from memplan.report.gate.diff_json import DOCUMENT, report_of
from memplan.report.html.growth import growth_view
from memplan.report.html.page import PageFrame, assemble
from memplan.report.html.view import anchors


def render(diff: Diff) -> str:
    """Write what changed as a page that needs nothing else."""
    versions = [each.memplan_version for change in diff.changes for each in (change.after, change.before) if each]
    frame = PageFrame(kind="diff", title=f"{diff.base} → {diff.head}", versions={"memplan": next(iter(versions), "")})
    keys = anchors([f"{change.job}-{change.gpu}" for change in diff.changes])
    context = {
        "said": answer(diff),
        "kind": "tight" if any(change.grown > 0 for change in diff.changes) else "fits",
        "rows": [
            {"key": key, "cells": row_cells(change), "name": _name(change), "view": growth_view(change.comparison)}
            for key, change in zip(keys, diff.changes, strict=True)
        ],
    }
    return assemble(frame, context, DOCUMENT.plain(report_of(diff)), template="diff.html.j2")


def _name(change: RowChange) -> str:
    return f"{change.job} on {change.gpu}"
