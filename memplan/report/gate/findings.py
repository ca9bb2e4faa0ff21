"""What the gate found as CI systems are told of it, and the figures that go with it."""

from collections.abc import Iterator
from dataclasses import replace

from memplan.findings.identity import identified
from memplan.findings.records import Finding, Findings
from memplan.findings.rules import ESTIMATE
from memplan.findings.sentences import NAME_CELLS
from memplan.gate.compare import with_figures
from memplan.gate.records import GateResult, Growth, Row
from memplan.report.draw.layout import file_name, source_line
from memplan.report.estimate.owners import TOP_LEVEL
from memplan.report.gate.growth import change, grouped_growth, share
from memplan.report.labels import LABELS
from memplan.text import clean, plain, shorten
from memplan.units import format_bytes

_SOURCE_CELLS = 56
"""A longer source line is told without its folders."""
_GROWTH_SHOWN = 3
"""Modules that an annotation names."""


def findings_of(result: GateResult) -> Findings:
    """What the gate found, as forges are told of it: with growth as evidence, files relative to the repository."""
    found = (_told(finding, row) for row in result.rows for finding in row.findings)
    return Findings(
        command="gate",
        found=identified(found),
        rules=tuple(ESTIMATE.values()),
        version=versions(result).get("memplan"),
        notes=tuple(map(plain, result.notes)),
    )


def _told(finding: Finding, row: Row) -> Finding:
    return replace(
        finding,
        message=plain(finding.message),
        fix=plain(finding.fix),
        evidence=tuple(growth_sentences(row)) if finding.severity != "note" else (),
        subject=(row.job, row.gpu),
    )


def name(row: Row) -> str:
    """``llama-8b on h100-80g``."""
    return " on ".join(shorten(each, NAME_CELLS) for each in (row.job, row.gpu))


def growth_sentences(row: Row) -> Iterator[str]:
    """What grew since the baseline: the peak, and the modules with most of it."""
    comparison = row.comparison
    if comparison is None or comparison.grown <= 0:
        return
    of_peak = f" ({share(comparison)})" if share(comparison) else ""
    yield f"grown since the baseline: {change(comparison.grown)}{of_peak}"
    for each in [each for each in grouped_growth(comparison.growth) if each.grown > 0][:_GROWTH_SHOWN]:
        source = short_source(each.source)
        yield f"{change(each.grown)} {category(each)} of {module(each)}" + (f" ({source})" if source else "")


def module(growth: Growth) -> str:
    """A module's path."""
    return shorten(growth.module or TOP_LEVEL, NAME_CELLS)


def category(growth: Growth) -> str:
    """What the report calls a category."""
    return clean(LABELS.get(growth.category, growth.category))


def short_source(source: str) -> str:
    """A source line, without its folders where it is long."""
    short = source_line(source)
    return shorten(short if len(short) <= _SOURCE_CELLS else file_name(short), NAME_CELLS)


def peak(row: Row) -> str:
    """The predicted device peak."""
    estimate = with_figures(row.estimate)
    return format_bytes(estimate.peak.device_bytes) if estimate else "no figure"


def peak_of_limit(row: Row) -> str:
    """The same, and what it is held against."""
    limit = limit_bytes(row)
    return f"{peak(row)} of {format_bytes(limit)}" if limit and with_figures(row.estimate) else peak(row)


def limit_bytes(row: Row) -> int | None:
    """What the peak is held against: the policy's limit or what the GPU has, the smaller one; None: nothing."""
    usable = row.estimate.gpu.usable_bytes if row.estimate else 0
    return min((limit for limit in (row.limit, usable or None) if limit is not None), default=None)


def versions(result: GateResult) -> dict[str, str]:
    """Of what made the figures: ``memplan`` and ``torch``; empty where there are none."""
    first = next((row.estimate for row in result.rows if row.estimate), None)
    return {"memplan": clean(first.memplan_version), "torch": clean(first.torch_version)} if first else {}
