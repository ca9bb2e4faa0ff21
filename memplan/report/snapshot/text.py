"""The text of ``memplan snapshot``: the answer first, then when, who, what is left, and what would have been."""

from collections.abc import Iterator, Sequence

from rich.text import Text

from memplan.report.draw.layout import SEPARATOR, bounded, columns, flow, hanging, pad, percent, spread, stacked
from memplan.report.estimate.timeline_chart import chart_lines
from memplan.report.places import name_of, source_of
from memplan.report.snapshot.hints import hints
from memplan.snapshot.analysis import SnapshotAnalysis
from memplan.snapshot.state import OutOfMemoryCause, OutOfMemoryEvent
from memplan.snapshot.timeline import PlaceTotal
from memplan.text import clean, shorten
from memplan.units import format_bytes

_PARTS_SHOWN = 3
"""Library lines shown under an owner."""
_PART_SHARE = 0.05
"""Share of all that a library line must hold to be shown."""
_SOURCES = {"default": "PyTorch's defaults (the file does not say)", "none": "no caching allocator"}
"""Where options come from, where the file has no words of theirs."""
_CAUSES = {
    OutOfMemoryCause.FRAGMENTATION: "enough was free in all, but in pieces: fragmentation",
    OutOfMemoryCause.FULL: "less was free in all than was asked for",
    OutOfMemoryCause.LIMIT: "the device had enough: the process was limited, or others freed memory late",
}


def render(
    name: str, analyses: Sequence[SnapshotAnalysis], shown: SnapshotAnalysis, *, width: int, top: int, quiet: bool
) -> list[Text]:
    """Write what a snapshot says of one device as lines of styled text; ``quiet`` only the headline."""
    width = bounded(width)
    said = headline(shown)
    blocks = [[said]]
    if not quiet:
        blocks = [
            [said, *_about(name, analyses, shown, width)],
            chart_lines(shown.curves.allocated, shown.curves.reserved, shown.curves.peak, width),
            _failures(shown, width),
            _owners("held at the peak by" if shown.events else "allocated by", shown.owners, top, width),
            _now(shown, width),
            _owners("still allocated at the end by", shown.alive, top, width) if shown.events else [],
            _what_ifs(shown, width),
            _sentences(shown, width),
        ]
    return stacked(blocks, width)


def headline(analysis: SnapshotAnalysis) -> Text:
    """The answer in one line."""
    allocated, reserved = format_bytes(analysis.peak.allocated), format_bytes(analysis.reserved_peak.reserved)
    figures = f"{allocated} allocated{SEPARATOR}{reserved} reserved"
    if not analysis.caching and not analysis.failures:
        return Text(f"✓ {'peak' if analysis.events else 'now'} {allocated} allocated", style="bold green")
    if analysis.failures:
        return Text(f"✗ out of memory{SEPARATOR}peak {figures}", style="bold red")
    if not analysis.events:
        return Text(f"now {figures}{SEPARATOR}{percent(analysis.slack)} free", style="bold")
    symbol, style = ("!", "bold yellow") if analysis.fragmented else ("✓", "bold green")
    return Text(f"{symbol} peak {figures}{SEPARATOR}{percent(analysis.slack)} fragmentation", style=style)


def _about(name: str, analyses: Sequence[SnapshotAnalysis], analysis: SnapshotAnalysis, width: int) -> Iterator[Text]:
    span = f" in {analysis.seconds:.3g} s" if analysis.seconds else ""
    history = f"{analysis.events:,} events{span}" if analysis.events else "no history"
    yield from flow("file", [name, f"device {analysis.device}", history], width)
    others = [str(other.device) for other in analyses if other.device != analysis.device]
    if others:
        yield from flow("also", [f"device {', '.join(others)} (--device N shows it)"], width)
    yield from flow("conf", [analysis.policy.conf or _SOURCES.get(analysis.policy.source, "PyTorch's defaults")], width)
    if analysis.events:
        yield from _replay(analysis, width)
        yield from flow("peak", _peak(analysis), width)


def _replay(analysis: SnapshotAnalysis, width: int) -> Iterator[Text]:
    counted, difference = replay_words(analysis)
    yield from flow("replay", counted, width) if counted else ()
    # Indented like the items above; the label stands on the first line that there is.
    head = f"{'' if counted else 'replay':8}"
    yield from (Text(line) for line in hanging(head, clean(difference), width) if difference)


def replay_words(analysis: SnapshotAnalysis) -> tuple[list[str], str]:
    """How far the model agrees with the history, in pieces, and where it first does not, or why nobody knows."""
    replay = analysis.replay
    if replay is None:
        return [], f"{'not compared' if analysis.caching else 'none'}: {analysis.not_compared}"
    found = f"{'exact: ' if replay.exact else ''}{replay.allocations_matched:,} of {replay.allocations:,} addresses"
    events = f"{replay.segment_events_matched:,} of {replay.segment_events:,} segment events"
    blocks = f"{replay.final_blocks_matched:,} of {replay.final_blocks:,} blocks at the end"
    difference = replay.first_mismatch and f"the first difference is at {replay.first_mismatch}"
    return [found, events, *([] if replay.exact else [blocks])], difference


def _peak(analysis: SnapshotAnalysis) -> Iterator[str]:
    peak = analysis.peak
    after = f" after {peak.seconds:.3g} s" if peak.seconds else ""
    yield f"at event {peak.event:,}{after}" if peak.event else "before the first event"
    if peak.place:
        yield from filter(None, (name_of(peak.place), source_of(peak.place)))


def _owners(title: str, owners: Sequence[PlaceTotal], top: int, width: int) -> list[Text]:
    total = sum(owner.size for owner in owners)
    if not total:
        return []
    lines = [spread(Text(f"  {title}", style="dim"), Text(f"{format_bytes(total)} in all", style="dim"), width)]
    for owner in owners[:top]:
        lines.append(_owner(owner, total, width))
        large = [part for part in owner.parts if part.size >= _PART_SHARE * total]
        # One part alone would say the same again.
        lines += [_part(part, total, width) for part in large[:_PARTS_SHOWN] if len(owner.parts) > 1]
    rest = owners[top:]
    if rest:
        size = sum(owner.size for owner in rest)
        count = sum(owner.count for owner in rest)
        more = f"{len(rest)} more {'places' if len(rest) > 1 else 'place'} (--top)"
        lines.append(Text(_figures(size, total, count) + more, style="dim"))
    return lines


def _owner(owner: PlaceTotal, total: int, width: int) -> Text:
    head = _figures(owner.size, total, owner.count)
    source = shorten(source_of(owner.place), width * 4 // 10)
    name = shorten(name_of(owner.place), max(0, width - len(head) - len(source) - 2))
    return spread(Text(head + name), Text(source, style="dim"), width)


def _part(part: PlaceTotal, total: int, width: int) -> Text:
    head = _figures(part.size, total, part.count)
    return Text(head + shorten(f"via {source_of(part.place)} {name_of(part.place)}", width - len(head)), style="dim")


def _figures(size: int, total: int, count: int) -> str:
    return f"  {format_bytes(size):>10}  {percent(size / total):>6}  {count:>6,}x  "


def _now(analysis: SnapshotAnalysis, width: int) -> list[Text]:
    return flow("now", now_words(analysis), width)


def now_words(analysis: SnapshotAnalysis) -> list[str]:
    """The state in the snapshot, in pieces."""
    now = analysis.now
    if not analysis.caching:
        return [f"{format_bytes(now.allocated)} allocated"]
    segments = sum(pool.segments for pool in now.pools)
    items = [
        f"{format_bytes(now.allocated)} allocated of {format_bytes(now.reserved)} reserved",
        f"{segments:,} segments",
        f"largest free block {format_bytes(now.largest_free)}",
        f"empty_cache() would give back {format_bytes(now.releasable)}",
        f"{format_bytes(now.stuck)} stuck beside live blocks",
    ]
    if now.pending:
        items.append(f"{format_bytes(now.pending)} waits for other streams")
    return items


def _failures(analysis: SnapshotAnalysis, width: int) -> list[Text]:
    lines = [line for failure in analysis.failures[:_FAILURES_SHOWN] for line in _failure(failure, width)]
    rest = len(analysis.failures) - _FAILURES_SHOWN
    return [*lines, *([Text(f"  {rest} more requests failed", style="dim")] if rest > 0 else [])]


_FAILURES_SHOWN = 3


def _failure(failure: OutOfMemoryEvent, width: int) -> list[Text]:
    return [Text(line) for line in hanging("  ✗ ", failure_words(failure), width)]


def failure_words(failure: OutOfMemoryEvent) -> str:
    """A request that failed, and why, as a sentence."""
    where = " ".join(filter(None, (name_of(failure.place), source_of(failure.place))))
    cached = failure.reserved - failure.allocated
    return (
        f"{format_bytes(failure.asked)} refused at event {failure.event:,} ({clean(where)}): "
        f"{format_bytes(failure.device_free)} left on the device, {format_bytes(cached)} free between live blocks; "
        f"{_CAUSES[failure.cause]}"
    )


def _what_ifs(analysis: SnapshotAnalysis, width: int) -> list[Text]:
    if analysis.baseline is None:
        return []
    cells = width - 2 - 3 * 12
    heads = ("reserved", "allocated", "fragmented")
    title = "peak under another conf" + (", with what failed" if analysis.failures else "")
    lines = [Text("  " + pad(title, cells) + columns(heads, 12), style="dim")]
    for label, fate, *figures in what_if_rows(analysis):
        name = shorten(label, cells - len(fate) - 3) + (f"  {fate}" if fate else "")
        lines.append(Text("  " + pad(name, cells) + columns(figures, 12)))
    return lines


def what_if_rows(analysis: SnapshotAnalysis) -> Iterator[tuple[str, str, str, str, str]]:
    """Options, whether what failed would have been served, and what is reserved, allocated and fragmented."""
    if analysis.baseline is None:
        return
    recorded = analysis.reserved_peak.reserved, analysis.peak.allocated
    yield "as recorded", "", *_peaks(*recorded)
    same = "the same conf" if analysis.caching else "PyTorch's defaults"
    tried = (
        (f"{same}, replayed from empty", analysis.baseline),
        *((found.conf or "PyTorch's defaults", found) for found in analysis.what_ifs),
    )
    for label, found in tried:
        fate = {True: "no OOM", False: "OOM", None: ""}[found.survives]
        yield label, fate, *_peaks(found.profile.peak_reserved, found.profile.peak_active)


def _peaks(reserved: int, allocated: int) -> tuple[str, str, str]:
    slack = max(0.0, 1 - allocated / reserved) if reserved else 0.0
    return format_bytes(reserved), format_bytes(allocated), percent(slack)


def _sentences(analysis: SnapshotAnalysis, width: int) -> list[Text]:
    notes = [Text(line, style="dim") for note in analysis.notes for line in hanging("note: ", clean(note), width)]
    return notes + [Text(line) for hint in hints(analysis) for line in hanging("hint: ", clean(hint), width)]
