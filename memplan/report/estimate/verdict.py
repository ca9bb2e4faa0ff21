"""The last block of the text report: one line per GPU, and what would make the step fit."""

from collections.abc import Sequence

from rich.text import Text

from memplan.measure.over import over
from memplan.measure.records import Advice, Estimate, Verdict
from memplan.report.draw.layout import pad, spread
from memplan.text import shorten
from memplan.units import format_bytes

# A verdict is told by a word and a symbol; colour only repeats it.
SYMBOLS = {Verdict.FITS: "✓", Verdict.TIGHT: "!", Verdict.OOM: "✗", Verdict.UNKNOWN: "?"}
STYLES = {
    Verdict.FITS: "bold green",
    Verdict.TIGHT: "bold yellow",
    Verdict.OOM: "bold red",
    Verdict.UNKNOWN: "bold magenta",
}
ADVICE_SHOWN = 5
_WORD_CELLS = 7
_NAME_CELLS = 24


def verdict_lines(estimates: Sequence[Estimate], width: int, *, with_peak: bool = False) -> list[Text]:
    """Every GPU's verdict, each followed by its advice; with the peak where several, or nothing else, say it."""
    name_cells = min(_NAME_CELLS, max(len(estimate.gpu.name) for estimate in estimates))
    lines = []
    for estimate in estimates:
        lines.append(_verdict_line(estimate, name_cells, width, with_peak=with_peak or len(estimates) > 1))
        lines += [_advice_line(advice, estimate, width) for advice in estimate.advice[:ADVICE_SHOWN]]
        if estimate.verdict is Verdict.UNKNOWN:
            lines += [Text(f"  because  {shorten(reason, width - 11)}") for reason in estimate.not_modelled[:1]]
    return lines


def statement(estimate: Estimate) -> str:
    """What the verdict says in figures."""
    usable = estimate.gpu.usable_bytes
    match estimate.verdict:
        case Verdict.UNKNOWN:
            return "no trustworthy figure"
        case Verdict.OOM:
            return f"{_over(estimate)} {format_bytes(usable)} usable"
        case _ if not usable:
            return "no fixed limit"
        case Verdict.TIGHT:
            free = [f"{format_bytes(estimate.headroom_bytes)} free"] if estimate.headroom_bytes >= 0 else []
            return ", ".join([*free, *([_over(estimate)] if _over(estimate) else [])])
        case Verdict.FITS:
            return f"{format_bytes(estimate.headroom_bytes)} free of {format_bytes(usable)} usable"


def _over(estimate: Estimate) -> str:
    return over(estimate.peak.device_bytes, estimate.peak.high_bytes, estimate.gpu.usable_bytes)


def _verdict_line(estimate: Estimate, name_cells: int, width: int, *, with_peak: bool) -> Text:
    verdict = estimate.verdict
    peak = f"peak {format_bytes(estimate.peak.device_bytes)}, " if with_peak and verdict != Verdict.UNKNOWN else ""
    left = Text.assemble(
        (f"{SYMBOLS[verdict]} {verdict.upper():{_WORD_CELLS}}", STYLES[verdict]),
        f"  {pad(estimate.gpu.name, name_cells)}  {peak}{statement(estimate)}",
    )
    return spread(left, Text(verdict.code or ""), width)


def _advice_line(advice: Advice, estimate: Estimate, width: int) -> Text:
    label = "fits with" if advice.device_bytes <= estimate.gpu.usable_bytes else "less with"
    gain = Text(f"→ {format_bytes(advice.device_bytes)}  {_slowdown(advice.slowdown)}")
    change = shorten(advice.change, max(1, width - len(label) - gain.cell_len - 6))
    return spread(Text.assemble("  ", (label, "dim"), f"  {change}"), gain, width)


def _slowdown(share: float) -> str:
    return f"{100 * share:+.0f} % time" if abs(share) >= 0.005 else "same time"
