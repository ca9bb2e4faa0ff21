"""An estimate in the words and shapes that the page's template puts in place."""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from memplan.measure.digest_records import DigestSegment, HistoryDigest
from memplan.measure.records import Advice, Estimate, Verdict
from memplan.report.draw.layout import source_line
from memplan.report.estimate.envelope import is_flat, moment
from memplan.report.estimate.interval import rests_on
from memplan.report.estimate.job import DEFAULT, FLOP_UNITS, job_items, scaled
from memplan.report.estimate.owners import grouped
from memplan.report.estimate.verdict import SYMBOLS, statement
from memplan.report.labels import LABELS
from memplan.units import MIB, format_bytes

Cells = tuple[str, ...]
"""One line of a table."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Part:
    """One part of the peak."""

    category: str
    """Key of the breakdown."""
    words: str
    """What it is called."""
    size: str
    """Its bytes in words."""
    share: str
    """Its share of the peak."""
    x: float
    """Where its stretch of the bar begins; the bar is 1000 wide."""
    width: float
    """How wide it is."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Bar:
    """The peak on the scale of the device."""

    parts: tuple[Part, ...]
    """From the left."""
    low: float
    """Lower end of the interval."""
    high: float
    """Upper end."""
    usable: float | None
    """What the device has; None where it has no limit."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Article:
    """One estimate."""

    key: str
    """Its anchor."""
    gpu: str
    """Name of the profile."""
    title: str
    """Of the article."""
    verdict: str
    """``fits`` …"""
    symbol: str
    """That stands for it."""
    code: str
    """``MP001``, or nothing."""
    statement: str
    """The verdict in figures."""
    job: str
    """What the step was."""
    facts: tuple[tuple[str, str, bool], ...] = ()
    """Name, value, and whether it is long."""
    bar: Bar | None = None
    """The peak; None where there are no figures."""
    peak: str = ""
    """The device peak in words."""
    owners: tuple[tuple[str, str, str, str, str], ...] = ()
    """Size, category and its words, module, source; repeated blocks together."""
    phases: tuple[Cells, ...] = ()
    """Phase, step, most allocated, most reserved."""
    kinds: tuple[Cells, ...] = ()
    """Kinds of segments: name, how many, reserved, allocated, free, largest hole."""
    advice: tuple[Cells, ...] = ()
    """Change, peak after it, what it saves, time."""
    held: tuple[Cells, ...] = ()
    """Categories of the timeline and their words."""
    timeline_note: str = ""
    """What the timeline leaves out."""
    assumptions: tuple[str, ...] = ()
    """Sentences."""
    not_modelled: tuple[str, ...] = ()
    """Phrases."""
    provenance: tuple[Cells, ...] = ()
    """Field, value, where it came from."""
    row: object | None = None
    """What a gate says of it (``memplan.report.html.gate``)."""


def article(key: str, estimate: Estimate, digest: HistoryDigest | None, row: object | None = None) -> Article:
    """Put an estimate into words, with its anchor in the page; without a digest neither timeline nor map."""
    known = estimate.verdict is not Verdict.UNKNOWN
    return Article(
        key=key,
        gpu=estimate.gpu.name,
        title=f"{estimate.target} on {estimate.gpu.title or estimate.gpu.name}",
        verdict=str(estimate.verdict),
        symbol=SYMBOLS[estimate.verdict],
        code=estimate.verdict.code or "",
        statement=statement(estimate),
        job=" · ".join(job_items(estimate)),
        facts=tuple(_facts(estimate)) if known else (),
        bar=_bar(estimate) if known else None,
        peak=format_bytes(estimate.peak.device_bytes) if known else "",
        owners=tuple(_owners(estimate)) if known else (),
        phases=tuple(_phases(digest)) if digest else (),
        kinds=tuple(_kinds(digest.segments)) if digest else (),
        advice=tuple(_advice(each, estimate) for each in estimate.advice) if known else (),
        held=tuple((name, LABELS[name]) for name in LABELS if name in digest.curve.categories) if digest else (),
        timeline_note=_left_out(digest) if digest else "",
        assumptions=estimate.assumptions,
        not_modelled=estimate.not_modelled,
        provenance=tuple(_provenance(estimate)),
        row=row,
    )


def _facts(estimate: Estimate) -> Iterator[tuple[str, str, bool]]:
    peak = estimate.peak
    yield "device peak", format_bytes(peak.device_bytes), False
    yield "interval", f"{format_bytes(peak.low_bytes)} to {format_bytes(peak.high_bytes)}", False
    yield "reserved", format_bytes(peak.reserved_bytes), False
    yield "allocated", format_bytes(peak.allocated_bytes), False
    elsewhere = (("host", peak.host_bytes), ("data loader", peak.data_pipeline_bytes), ("NVMe", peak.nvme_bytes))
    for name, size in elsewhere:
        if size >= MIB:
            yield f"{name}, each rank", format_bytes(size), False
    if estimate.flops_per_step:
        yield "work per step", f"{scaled(estimate.flops_per_step, FLOP_UNITS)}FLOP", False
    reached = (peak.phase, peak.module, peak.op.removesuffix(".default"), source_line(peak.source))
    yield "peak reached in", " · ".join(word for word in reached if word), True
    for each in () if is_flat(estimate.envelope) else estimate.envelope:
        told = [each.reason] if each.device_bytes is None else [format_bytes(each.device_bytes), *moment(each)]
        yield f"routing {each.routing}", " · ".join(told), True
    if peak.basis is not None:
        yield "basis of the interval", rests_on(peak.basis).removeprefix("interval from "), True
    if not estimate.repeats:
        yield "repeats", "the traced steps do not repeat: a later step may need more", True


def _bar(estimate: Estimate) -> Bar:
    peak, usable = estimate.peak, estimate.gpu.usable_bytes
    scale = 1000 / max(peak.device_bytes, peak.high_bytes, usable, 1)
    parts, at = [], 0
    for category, size in estimate.breakdown.items():
        if size > 0:
            parts.append(_part(category, size, at, scale, peak.device_bytes))
            at += size
    return Bar(
        parts=tuple(parts),
        low=round(peak.low_bytes * scale, 2),
        high=round(peak.high_bytes * scale, 2),
        usable=round(usable * scale, 2) if usable else None,
    )


def _part(category: str, size: int, at: int, scale: float, whole: int) -> Part:
    return Part(
        category=category,
        words=LABELS.get(category, category.replace("_", " ")),
        size=format_bytes(size),
        share=f"{100 * size / max(1, whole):.1f} %",
        x=round(at * scale, 2),
        width=round(size * scale, 2),
    )


def _owners(estimate: Estimate) -> Iterator[tuple[str, str, str, str, str]]:
    for owner in grouped(estimate.owners):
        words = LABELS.get(owner.category, owner.category)
        module = owner.module or "(top level)"
        yield format_bytes(owner.bytes), owner.category, words, module, source_line(owner.source)


def _phases(digest: HistoryDigest) -> Iterator[Cells]:
    curve = digest.curve
    for span in digest.spans:
        inside = [index for index, event in enumerate(curve.events) if span.start <= event < span.end]
        if inside:
            allocated, reserved = (
                max(values[index] for index in inside) for values in (curve.allocated, curve.reserved)
            )
            yield span.phase, str(span.step or ""), format_bytes(allocated), format_bytes(reserved)


def _kinds(segments: Iterable[DigestSegment]) -> Iterator[Cells]:
    kinds: defaultdict[tuple[int, str], list[DigestSegment]] = defaultdict(list)
    for segment in segments:
        pool = "small pool" if segment.small else "large pool"
        kinds[segment.stream, f"expandable, {pool}" if segment.expandable else pool].append(segment)
    for (stream, pool), found in sorted(kinds.items(), key=lambda item: -sum(each.nbytes for each in item[1])):
        holes = [block.nbytes for segment in found for block in segment.blocks if block.holder < 0]
        reserved = sum(segment.nbytes for segment in found)
        figures = (reserved, reserved - sum(holes), sum(holes), max(holes, default=0))
        yield f"{pool}, stream {stream}", str(len(found)), *map(format_bytes, figures)


def _advice(advice: Advice, estimate: Estimate) -> Cells:
    time = f"{100 * advice.slowdown:+.0f} %" if abs(advice.slowdown) >= 0.005 else "same"
    saved = estimate.peak.device_bytes - advice.device_bytes
    return advice.change, format_bytes(advice.device_bytes), format_bytes(saved), time


def _left_out(digest: HistoryDigest) -> str:
    kept, all_events = len(digest.curve.events), digest.events
    samples = f"{kept} samples of {all_events} events, the highest moment of each stretch" if kept < all_events else ""
    buffers = (
        f"the {len(digest.buffers)} largest buffers, {digest.buffers_left_out} smaller ones count as everything else"
    )
    return "; ".join(part for part in (samples, buffers if digest.buffers_left_out else "") if part)


def _provenance(estimate: Estimate) -> Iterator[Cells]:
    options = estimate.options
    for name, source in sorted(estimate.provenance.items()):
        if name in options or source != DEFAULT:
            yield name, options.get(name, ""), source


def anchors(names: Sequence[str]) -> list[str]:
    """Distinct anchors for names from outside, as people would type them."""
    taken: dict[str, None] = {}
    for number, name in enumerate(names):
        word = "".join(char if char.isalnum() and char.isascii() else "-" for char in name.lower()).strip("-")
        taken[word if word and word not in taken else f"{word or 'gpu'}-{number}"] = None
    return list(taken)
