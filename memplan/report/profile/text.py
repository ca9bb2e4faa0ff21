"""A recording as text: what each region took, and how near a plan came to it."""

from collections.abc import Iterator

from rich.text import Text

from memplan.report.draw.layout import SEPARATOR, bounded, flow, pad, paragraphs, stacked
from memplan.report.estimate.timeline_chart import chart_lines
from memplan.report.profile.records import Deviation, Overlay, Piece
from memplan.runtime.profile.recording import Recording
from memplan.runtime.profile.records import Region
from memplan.text import clean, shorten
from memplan.units import format_bytes

COUNTERS = {"cuda": "PyTorch's CUDA allocator", "cpu": "PyTorch's CPU allocator", "resident": "resident memory"}
"""Who counted, in words."""
_SIZE_CELLS = 11
_CALL_CELLS, _TIME_CELLS = 8, 11
_LEGEND_CELLS = 27
LEAST_PERCENT = 0.0001
"""Smaller shares would be told as 0."""


def render(recording: Recording, overlay: Overlay | None = None, *, width: int = 80, quiet: bool = False) -> list[Text]:
    """Write a recording as lines of styled text; ``quiet`` only the comparison, else the regions."""
    width = bounded(width)
    blocks = [list(_regions(recording, width))]
    if overlay is not None:
        blocks.append(list(_comparison(overlay)))
    if quiet:
        return stacked(blocks[-1:], width)
    notes = [*recording.notes, *(overlay.notes if overlay else ())]
    blocks = [_head(recording, width), _chart(recording, width), *blocks, paragraphs("notes", notes, width)]
    return stacked(blocks, width)


def _head(recording: Recording, width: int) -> list[Text]:
    steps = f"{len(recording.steps)} step{'s' if len(recording.steps) != 1 else ''} in {seconds(recording.seconds)}"
    items = [clean(recording.name), recording.device, f"depth {recording.depth}", steps]
    sizes = [f"peak {format_bytes(recording.peak_bytes)}", f"in the end {format_bytes(recording.end_bytes)}"]
    versions = SEPARATOR.join(f"{name} {text}" for name, text in sorted(recording.versions.items()))
    return [
        *flow("profile", items, width),
        *flow("by", [COUNTERS.get(recording.source, recording.source), versions], width),
        *flow("bytes", sizes, width),
        *flow("cost", list(overhead_words(recording)), width),
    ]


def overhead_words(recording: Recording) -> Iterator[str]:
    """What recording took, in phrases."""
    overhead, seconds = recording.overhead, max(recording.seconds, 1e-9)
    share = 100 * overhead.border_seconds / seconds
    yield f"{overhead.borders:,} borders of regions took {share:.2f} % of the time"
    if overhead.samples:
        busy = 100 * overhead.sampling_seconds / seconds
        yield f"{overhead.samples:,} samples {busy:.2f} % of a processor"
    if recording.events is not None:
        yield f"{len(recording.events):,} events"


def _chart(recording: Recording, width: int) -> list[Text]:
    levels = curve(recording)
    lines = chart_lines(levels, levels, levels.index(max(levels)), width) if levels else []
    # The legend tells allocated from reserved; here there is one curve.
    what = "event by event" if recording.events is not None else "sample by sample"
    return [*lines[:-1], Text(f"{what:>{_LEGEND_CELLS}}", style="dim")] if lines else []


def curve(recording: Recording) -> list[int]:
    """Bytes over the recording, event by event or sample by sample; nothing where only regions were looked at."""
    if recording.events is not None:
        return list(recording.events.levels(recording.start_bytes))
    return [sample.peak_bytes for sample in recording.samples]


def _regions(recording: Recording, width: int) -> Iterator[Text]:
    room = width - _CALL_CELLS - 3 * _SIZE_CELLS - _TIME_CELLS - 4
    titles = ("calls".rjust(_CALL_CELLS), *(word.rjust(_SIZE_CELLS) for word in ("peak", "above", "left")))
    yield Text(f"  {pad('region', room)}{''.join(titles)}{'time'.rjust(_TIME_CELLS)}", style="bold")
    for region in recording.regions:
        yield Text(_region(region, room))
    if any(region.errors for region in recording.regions):
        yield Text("  ! ended with an exception at least once", style="dim")


def _region(region: Region, room: int) -> str:
    mark = "! " if region.errors else "  "
    name = pad("  " * (len(region.path) - 1) + clean(region.path[-1]), room)
    sizes = (region.peak_bytes, region.growth_bytes, region.delta_bytes)
    figures = "".join(format_bytes(size).rjust(_SIZE_CELLS) for size in sizes)
    return f"{mark}{name}{region.calls:>{_CALL_CELLS},}{figures}{seconds(region.seconds).rjust(_TIME_CELLS)}"


def seconds(time: float) -> str:
    """A time in the unit that suits it."""
    for unit, factor in (("s", 1.0), ("ms", 1e-3), ("us", 1e-6)):
        if time >= factor:
            return f"{time / factor:.2f} {unit}"
    return f"{time * 1e9:.0f} ns"


def _comparison(overlay: Overlay) -> Iterator[Text]:
    titles = "".join(word.rjust(14) for word in ("predicted", "measured"))
    yield Text(f"  {pad('', 9)}{titles}    predicted - measured", style="bold")
    rows = [("peak", overlay.predicted_peak, overlay.measured_peak)]
    rows += [(piece_name(piece), piece.predicted_peak_bytes, piece.measured_peak_bytes) for piece in overlay.pieces]
    for name, predicted, measured in rows:
        sizes = "".join(format_bytes(peak).rjust(14) for peak in (predicted, measured))
        yield Text(f"  {pad(name, 9)}{sizes}    {difference(predicted, measured)}")
    yield Text("")
    for sentence in sentences(overlay):
        yield Text(f"  {sentence}")


def piece_name(piece: Piece) -> str:
    """What a piece of the run is called."""
    return {-1: "whole run", 0: "set-up"}.get(piece.step, f"step {piece.step}")


def difference(predicted: int, measured: int) -> str:
    """How far a prediction is off, in words."""
    if predicted == measured:
        return "exact"
    share, nbytes = 100 * (predicted / measured - 1) if measured else 0.0, f"{predicted - measured:+,} B"
    return f"{share:+.4f} %  ({nbytes})" if abs(share) >= LEAST_PERCENT else nbytes


def sentences(overlay: Overlay) -> Iterator[str]:
    """What the comparison says, beside the peaks."""
    share = 100 * overlay.share
    # Rounding up to 100 would claim what is not so.
    exact = overlay.matched == overlay.predicted_events == overlay.measured_events
    words = "100 %" if exact else f"{min(share, 99.99):.2f} %"
    of = f"{overlay.matched:,} of {overlay.predicted_events:,} predicted, {overlay.measured_events:,} came"
    yield f"events  {words} the same: {of}"
    if overlay.largest is not None:
        yield f"curve   farthest apart {_apart(overlay.largest, overlay.measured_peak)}"
        yield f"        half of {overlay.compared:,} events within {format_bytes(overlay.median_bytes)}"
    if overlay.between_bytes:
        yield f"        between them, where events differ, up to {format_bytes(overlay.between_bytes)}"


def _apart(deviation: Deviation, peak: int) -> str:
    share = 100 * abs(deviation.nbytes) / peak if peak else 0.0
    words = f" ({share:.4f} % of the peak)" if share >= LEAST_PERCENT else ""
    place = f"step {deviation.step}, {deviation.phase}" if deviation.step > 0 else deviation.phase or "set-up"
    return shorten(f"{format_bytes(abs(deviation.nbytes))}{words} at event {deviation.event:,}, {place}", 70)
