"""What the gate found as CI systems take it: one list of findings, each with an identity that lasts."""

import hashlib
import json
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass

from memplan.gate.records import Finding, GateResult, Growth, Row
from memplan.measure.records import Estimate, Verdict
from memplan.report.draw.layout import clean, file_name, shorten, source_line
from memplan.report.estimate.owners import TOP_LEVEL
from memplan.report.gate.growth import change, grouped_growth, share
from memplan.report.labels import LABELS
from memplan.units import format_bytes

_LEVELS = ("error", "warning", "note")
NAME_CELLS = 120
"""A longer name is cut in its middle."""
_SOURCE_CELLS = 56
"""A longer source line is told without its folders."""
_GROWTH_SHOWN = 3
"""Modules that an annotation names."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Told:
    """A finding and what it is about."""

    row: Row
    """Job and GPU."""
    finding: Finding
    """What is found of them."""
    identity: str
    """32 hexadecimal digits from rule, job and GPU, unique in the result. Neither figures nor lines count: the same
    finding keeps it from commit to commit."""


def told(result: GateResult) -> list[Told]:
    """Every finding: errors first, then in the order of the result."""
    seen: Counter[tuple[str, str, str]] = Counter()
    found = []
    for row in result.rows:
        for finding in row.findings:
            key = (finding.code, row.job, row.gpu)
            digest = hashlib.sha256(json.dumps([*key, seen[key]]).encode()).hexdigest()
            found.append(Told(row=row, finding=finding, identity=digest[:32]))
            seen[key] += 1
    return sorted(found, key=lambda each: _LEVELS.index(each.finding.level))


def name(row: Row) -> str:
    """``llama-8b on h100-80g``."""
    return " on ".join(shorten(each, NAME_CELLS) for each in (row.job, row.gpu))


def plain(text: str) -> str:
    """A sentence on one line, without control characters."""
    return clean(" ".join(text.split()))


def words(each: Told) -> list[str]:
    """A finding in sentences: what is found, what to do, and what grew."""
    finding = each.finding
    said = [f"{name(each.row)}: {plain(finding.message)}", plain(finding.hint)]
    said += growth_sentences(each.row) if finding.level != "note" else []
    return [part for part in said if part]


def one_line(each: Told) -> str:
    """The same for what takes a single line."""
    return ". ".join(part.rstrip(".") for part in words(each))


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


def with_figures(row: Row) -> Estimate | None:
    """The row's estimate, if it has figures."""
    estimate = row.estimate
    return None if estimate is None or estimate.verdict is Verdict.UNKNOWN else estimate


def peak(row: Row) -> str:
    """The predicted device peak."""
    estimate = with_figures(row)
    return format_bytes(estimate.peak.device_bytes) if estimate else "no figure"


def limit_bytes(row: Row) -> int | None:
    """What the peak is held against: the policy's limit or what the GPU has, the smaller one; None: nothing."""
    usable = row.estimate.gpu.usable_bytes if row.estimate else 0
    return min((limit for limit in (row.limit, usable or None) if limit is not None), default=None)


def versions(result: GateResult) -> dict[str, str]:
    """Of what made the figures: ``memplan`` and ``torch``; empty where there are none."""
    first = next((row.estimate for row in result.rows if row.estimate), None)
    return {"memplan": clean(first.memplan_version), "torch": clean(first.torch_version)} if first else {}
