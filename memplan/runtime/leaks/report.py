"""What an investigation found, as text of 80 columns, as findings, and as a document for JSON. Torch-free."""

import os
import textwrap
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from memplan.findings.records import NOWHERE, Finding, Place
from memplan.findings.rules import RULES
from memplan.runtime.leaks.records import Growing, Origin, Outcome, Site
from memplan.units import format_bytes

WIDTH, INDENT, MOST_SITES = 80, 9, 8
_SAYS = {
    Outcome.LEAK: "what past steps made stays, and nothing bounds it",
    Outcome.FILLING: "it goes into containers with a bound: no leak",
    Outcome.CYCLES: "the garbage collector gives it back, late: cycles, no leak",
    Outcome.LARGER: "nothing of past steps stays: the steps themselves get larger, no leak",
    Outcome.STEADY: "nothing grows; this is what past steps made and is still there",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class LeakReport:
    """What an investigation found."""

    outcome: Outcome
    """What it came to."""
    step: int
    """When it ended."""
    source: str
    """What was counted: ``cuda:0``, ``cpu``, ``resident``."""
    growth: Growing | None
    """Bytes; None where only their number grows, or somebody asked."""
    count: Growing | None
    """Live allocations; None where their number does not grow, or nobody counts them."""
    sites: tuple[Site, ...]
    """Where what stays is born: what leaks first, then what has most bytes."""
    classes: tuple[tuple[int, int, int], ...]
    """By size class, a power of two that is the least upper bound: (bytes, storages that stayed, their bytes)."""
    sampled_steps: int
    """Steps whose births were written down."""
    explained: float
    """Bytes per step of all sites."""
    seconds: float
    """What the investigation itself took, the slower sampled steps apart."""

    @property
    def unexplained(self) -> float:
        """Bytes per step that grow and that no site explains."""
        return max(0.0, self.growth.rate - self.explained) if self.growth else 0.0

    @property
    def codes(self) -> tuple[str, ...]:
        """Rules of the findings."""
        return tuple(finding.code for finding in self.findings)

    @property
    def findings(self) -> tuple[Finding, ...]:
        """Causes: of what leaks, else of what the collector freed; the one with most bytes first."""
        if self.outcome is Outcome.CYCLES:
            return (_finding("ML005", [site for site in self.sites if site.collected]),)
        leaking = [site for site in self.sites if site.leaks]
        causes = dict.fromkeys(site.code for site in leaking)
        if self.outcome is Outcome.LEAK and not causes:
            return (_finding("ML016", ()),)
        return tuple(_finding(code, [site for site in leaking if site.code == code]) for code in causes)

    def __str__(self) -> str:
        """Lines of 80 characters."""
        return render(self)


def _finding(code: str, sites: Sequence[Site]) -> Finding:
    first = next((site.place for site in sites if site.place), None)
    return Finding(
        code=code,
        severity="warning" if code == "ML005" else "error",
        message=f"{RULES[code].title}: {format_bytes(round(sum(site.bytes_per_step for site in sites)))} a step",
        place=Place(file=first[0], line=first[1]) if first else NOWHERE,
        evidence=tuple(dict.fromkeys(f"kept by {site.chain}" for site in sites if site.chain.links)),
        fix=RULES[code].remedy,
    )


def render(report: LeakReport) -> str:
    """The report in lines of at most 80 characters (a name in one word may be longer)."""
    blocks = [_head(report), _sites(report), _causes(report)]
    return "\n\n".join("\n".join(block) for block in blocks if block) + "\n"


def document(report: LeakReport) -> dict[str, Any]:
    """The report as JSON has it; bytes are numbers."""
    found = asdict(report)
    found["sites"] = [_site_document(site) for site in report.sites]
    found["classes"] = [dict(zip(("bound", "storages", "bytes"), each, strict=True)) for each in report.classes]
    return {"schema_version": "1.0", "codes": list(report.codes), "unexplained": report.unexplained} | found


def _site_document(site: Site) -> dict[str, Any]:
    place = dict(zip(("file", "line", "function"), site.place, strict=True)) if site.place else None
    return asdict(site) | {"place": place, "chain": asdict(site.chain) | {"path": str(site.chain)}}


def _head(report: LeakReport) -> list[str]:
    lines = [f"{report.outcome}: {_SAYS[report.outcome]}"]
    if report.growth:
        lines.append(f"bytes    {_rate(report.growth)} on {report.source}")
    if report.count:
        lines.append(f"count    {report.count.rate:.2f} allocations a step more, since step {report.count.since}")
    sampled = f"seen     {report.sampled_steps} steps, looked at in step {report.step}: "
    lines.append(f"{sampled}{format_bytes(round(report.explained))} a step stayed")
    if report.unexplained > 0.01 * (report.growth.rate if report.growth else 0):
        lines.append(f"unknown  {format_bytes(round(report.unexplained))} a step that nothing seen explains")
    if report.classes:
        sizes = (f"{number} up to {format_bytes(bound)}" for bound, number, _ in report.classes)
        lines += _wrapped("sizes", ", ".join(sizes))
    return lines


def _rate(growth: Growing) -> str:
    low, high = (format_bytes(round(each)) for each in (growth.low, growth.high))
    return f"{format_bytes(round(growth.rate))} a step ({low} to {high}), since step {growth.since}"


def _sites(report: LeakReport) -> list[str]:
    shown = report.sites[:MOST_SITES]
    lines = [line for site in shown for line in _site(site)]
    left = len(report.sites) - len(shown)
    return [*lines, f"         and {left} more"] if left else lines


def _site(site: Site) -> Iterator[str]:
    where = _place(site.place) if site.place else "outside of what was seen"
    size = f"{format_bytes(round(site.bytes_per_step))} a step"
    code = site.code if site.leaks or site.collected else ""
    yield from _wrapped(code, f"{size}, {site.op} {list(site.shape)} {site.dtype} at {where}")
    if site.chain.links:
        bound = f", which takes {site.chain.bound} at most" if site.chain.bound is not None else ""
        yield from _wrapped("", f"kept by {site.chain}{bound}")
    if site.chain.cycle:
        yield from _wrapped("", f"in a cycle: {' → '.join(site.chain.cycle)}")
    elif not site.chain.rooted:
        yield from _wrapped("", "by no variable: C++ alone keeps it, or the search ended early")


def _place(place: Origin) -> str:
    file, line, function = place
    near = os.path.relpath(file)
    return f"{file if near.startswith('..') else near}:{line} ({function})"


def _causes(report: LeakReport) -> list[str]:
    lines: list[str] = []
    for finding in report.findings:
        rule = RULES[finding.code]
        lines += [f"{rule.code:<{INDENT}}{rule.title}", *_wrapped("", rule.meaning), *_wrapped("", finding.fix)]
    return lines


def _wrapped(label: str, text: str) -> list[str]:
    indent = " " * INDENT
    wrapped = textwrap.wrap(
        text, WIDTH, initial_indent=label.ljust(INDENT), subsequent_indent=indent, break_on_hyphens=False
    )  # fmt: skip
    return wrapped or [label]
