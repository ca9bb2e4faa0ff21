"""The peak with each way of routing tokens to experts, and where it moves."""

from collections.abc import Sequence

from rich.text import Text

from memplan.measure.records import RoutedPeak, Verdict
from memplan.report.draw.layout import hanging, packed, pad, source_line
from memplan.report.estimate.verdict import STYLES, SYMBOLS
from memplan.text import clean, shorten
from memplan.units import format_bytes

TITLE = "peak by how tokens are routed to experts"
_WORD_CELLS = 9


def is_flat(envelope: Sequence[RoutedPeak]) -> bool:
    """Does every way of routing take the same?"""
    return len({(each.device_bytes, each.reason) for each in envelope}) == 1


def moment(peak: RoutedPeak) -> list[str]:
    """Phase and module, op, and source line of a peak, as far as they are known."""
    place = f"{peak.phase}/{peak.module}" if peak.module else peak.phase
    return [clean(part) for part in (place, peak.op.removesuffix(".default"), source_line(peak.source)) if part]


def envelope_lines(envelope: Sequence[RoutedPeak], width: int) -> list[Text]:
    """A line for each way of routing: verdict, peak and its moment; one line where all take the same."""
    if not envelope:
        return []
    title = Text(TITLE, style="bold")
    if is_flat(envelope) and envelope[0].device_bytes is not None:
        words = ", ".join(each.routing for each in envelope)
        return [title, *map(Text, hanging(f"  {format_bytes(envelope[0].device_bytes)}  ", words, width))]
    sizes = ["" if each.device_bytes is None else format_bytes(each.device_bytes) for each in envelope]
    cells = max(map(len, sizes))
    lines = [title]
    for each, size in zip(envelope, sizes, strict=True):
        head = f"{pad(each.routing, _WORD_CELLS)}  {size:>{cells}}  "
        mark = Text(f"  {SYMBOLS[each.verdict]} ", style=STYLES[each.verdict])
        if each.verdict is Verdict.UNKNOWN:
            lines.append(mark + Text(head + shorten(each.reason, max(1, width - len(head) - 4))))
            continue
        first, *further = packed(moment(each), max(1, width - len(head) - 4)) or [""]
        lines += [mark + Text(head + first), *(Text(" " * (len(head) + 4) + line) for line in further)]
    return lines
