"""The first block of the text report: one line per GPU, what it costs, and what would make the step fit."""

import re
from collections.abc import Mapping, Sequence
from types import MappingProxyType

from rich.cells import cell_len
from rich.text import Text

from memplan.measure.over import over
from memplan.measure.records import Advice, Estimate, Price, Verdict
from memplan.report.draw.layout import packed, pad, spread
from memplan.text import clean, shorten
from memplan.units import format_bytes

# A verdict is told by a word and a symbol; colour only repeats it.
SYMBOLS = {Verdict.FITS: "✓", Verdict.TIGHT: "!", Verdict.OOM: "✗", Verdict.UNKNOWN: "?"}
STYLES = {
    Verdict.FITS: "bold green",
    Verdict.TIGHT: "bold yellow",
    Verdict.OOM: "bold red",
    Verdict.UNKNOWN: "bold magenta",
}
ADVICE_SHOWN = 8
NO_COMMANDS: Mapping[str, str] = MappingProxyType({})
"""Where nobody types commands: in files, and of what was saved."""
_WORD_CELLS = 7
_NAME_CELLS = 24
_SHELL_WORD = re.compile(r"(?:'[^']*'|\S)+")
"""A word as ``shlex.join`` writes it."""


def verdict_lines(estimates: Sequence[Estimate], width: int, commands: Mapping[str, str] = NO_COMMANDS) -> list[Text]:
    """Return every GPU's verdict and peak, each followed by its advice or by the command that searches for one.

    The last line names the cheapest GPU, where there are prices.
    """
    name_cells = min(_NAME_CELLS, max(len(estimate.gpu.name) for estimate in estimates))
    prices, lines = price_cells(estimates), []
    briefly = any(prices) or any(_is_too_long(estimate, name_cells, width) for estimate in estimates)
    for estimate, price in zip(estimates, prices, strict=True):
        lines.append(spread(_verdict(estimate, name_cells, price, briefly=briefly), _code(estimate), width))
        lines += [_advice_line(advice, estimate, width) for advice in estimate.advice[:ADVICE_SHOWN]]
        if estimate.verdict is Verdict.UNKNOWN:
            lines += [Text(f"  because  {shorten(reason, width - 11)}") for reason in estimate.not_modelled[:1]]
        if estimate.verdict is Verdict.OOM and not any(_keeps_job(advice, estimate) for advice in estimate.advice):
            lines += _next_lines(commands.get(estimate.gpu.name, ""), width)
    return [*lines, *cheapest_lines(estimates, width)]


def statement(estimate: Estimate, *, briefly: bool = False) -> str:
    """What the verdict says in figures; ``briefly`` without what the device has, or what is free where little is."""
    usable = estimate.gpu.usable_bytes
    match estimate.verdict:
        case Verdict.UNKNOWN:
            return "no trustworthy figure"
        case Verdict.OOM:
            return _over(estimate) if briefly else f"{_over(estimate)} {format_bytes(usable)} usable"
        case _ if not usable:
            return "no fixed limit"
        case Verdict.TIGHT:
            if not _over(estimate):
                return "fits if the cache is given back"
            free = [f"{format_bytes(estimate.headroom_bytes)} free"] if estimate.headroom_bytes >= 0 else []
            return _over(estimate) if briefly else ", ".join([*free, _over(estimate)])
        case Verdict.FITS:
            free_bytes = f"{format_bytes(estimate.headroom_bytes)} free"
            return free_bytes if briefly else f"{free_bytes} of {format_bytes(usable)} usable"


def _over(estimate: Estimate) -> str:
    return over(estimate.peak.device_bytes, estimate.peak.high_bytes, estimate.gpu.usable_bytes)


def _verdict(estimate: Estimate, name_cells: int, price: str, *, briefly: bool) -> Text:
    verdict = estimate.verdict
    peak = f"peak {format_bytes(estimate.peak.device_bytes)}, " if verdict != Verdict.UNKNOWN else ""
    return Text.assemble(
        (f"{SYMBOLS[verdict]} {verdict.upper():{_WORD_CELLS}}", STYLES[verdict]),
        f"  {pad(estimate.gpu.name, name_cells)}  {price}{peak}{statement(estimate, briefly=briefly)}",
    )


def _code(estimate: Estimate) -> Text:
    return Text(estimate.verdict.code or "")


def _is_too_long(estimate: Estimate, name_cells: int, width: int) -> bool:
    line, code = _verdict(estimate, name_cells, "", briefly=False), _code(estimate)
    return line.cell_len + code.cell_len + 2 > width  # The two are what ``spread`` leaves between.


def _advice_line(advice: Advice, estimate: Estimate, width: int) -> Text:
    label = "fits with" if _makes_fit(advice, estimate) else "less with"
    gain = Text(f"→ {format_bytes(advice.device_bytes)}  {_slowdown(advice.slowdown)}")
    change = shorten(advice.change, max(1, width - len(label) - gain.cell_len - 6))
    return spread(Text.assemble("  ", (label, "dim"), f"  {change}"), gain, width)


def _makes_fit(advice: Advice, estimate: Estimate) -> bool:
    return advice.device_bytes <= estimate.gpu.usable_bytes


def _keeps_job(advice: Advice, estimate: Estimate) -> bool:
    """Does it fit with the same model and data? A search is tried before half the layers, or shorter texts."""
    return advice.change.startswith("--") and not advice.change.startswith("--seq-len") and _makes_fit(advice, estimate)


def _next_lines(command: str, width: int) -> list[Text]:
    """A command to copy: it breaks between words, as a shell reads it; one that would have to be cut is described."""
    label, indent = "  search   ", " " * 13
    words, room = _SHELL_WORD.findall(command), width - len(indent) - 2
    if any(cell_len(word) > room for word in words):
        words = ["memplan", "recommend,", "with", "the", "same", "words"]
    lines = packed(words, room, " ")
    ends = [" \\"] * (len(lines) - 1) + [""]
    heads = [label] + [indent] * (len(lines) - 1)
    return [Text.assemble((head, "dim"), line, end) for head, line, end in zip(heads, lines, ends, strict=True) if line]


def _slowdown(share: float) -> str:
    return f"{100 * share:+.0f} % time" if abs(share) >= 0.005 else "same time"


def price_cells(estimates: Sequence[Estimate]) -> list[str]:
    """Return a cell for each estimate, all of one width: ``2.99 EUR/h``; empty ones where no GPU has a price."""
    cells = [f"{_amount(each.price)}/h  " if each.price else "" for each in estimates]
    width = max(map(cell_len, cells))
    return [pad(cell, width) for cell in cells]


def cheapest_lines(estimates: Sequence[Estimate], width: int) -> list[Text]:
    """Name the cheapest of several GPUs that the job surely fits on, of those with a price."""
    priced = [
        (each.price, each.gpu.name) for each in estimates if each.price is not None and each.verdict is Verdict.FITS
    ]
    if len(estimates) == 1 or not priced:
        return []
    price, name = min(priced, key=lambda each: each[0].per_hour)
    count = f" for {price.gpus} of them" if price.gpus > 1 else ""
    return [Text(shorten(f"cheapest that fits: {name}, {_amount(price)} per hour{count}", width))]


def _amount(price: Price) -> str:
    return f"{price.per_hour:,.2f} {clean(price.currency)}".rstrip()
