"""The report of a watched run: how it ended and why, its peaks against the plan, levels over time, what to do."""

from collections.abc import Iterator

from rich.text import Text

from memplan.findings.rules import RULES
from memplan.report.draw.layout import SEPARATOR, bounded, columns, flow, hanging, pad, paragraphs, stacked
from memplan.report.estimate.timeline_chart import chart_lines
from memplan.report.monitor.live import STYLES, SYMBOLS, duration
from memplan.runtime.monitor.outcome import Peak, PostMortem, RunOutcome
from memplan.runtime.monitor.post_mortem import UNEXPLAINED_KILL
from memplan.runtime.monitor.records import Check
from memplan.text import clean, shorten
from memplan.units import format_bytes

_CHANGES_SHOWN = 6
_NAME_CELLS, _SIZE_CELLS = 14, 13


def render(outcome: RunOutcome, *, width: int = 80, quiet: bool = False) -> list[Text]:
    """Write a run as lines of styled text; ``quiet`` only how it ended, and why it ran out of memory."""
    width = bounded(width)
    blocks = [_post_mortem(outcome.post_mortem, width), [_headline(outcome)]]
    if not quiet:
        blocks = [
            [*_about(outcome, width)],
            [*_peaks(outcome)],
            _chart(outcome, width),
            [*_changes(outcome, width)],
            _todo(outcome, width),
            paragraphs("notes", outcome.notes, width),
            *blocks,
        ]
    return stacked(blocks, width)


def change_line(seconds: float, step: int | None, word: str, sentence: str) -> str:
    """One change of the level, as a line of plain text."""
    at = f"{duration(seconds)}{f', step {step}' if step is not None else ''}"
    return f"memplan: memory {word} after {at}" + (f": {clean(sentence)}" if sentence else "")


def _headline(outcome: RunOutcome) -> Text:
    ending = outcome.ending
    how = f"exit {ending.code}" if ending.code >= 0 else f"signal {-ending.code}"
    facts = [how, duration(ending.seconds), f"worst level: {outcome.level.word}"]
    if outcome.post_mortem:
        # A kill that nobody explains need not have been for want of memory.
        word = "KILLED" if outcome.post_mortem.code == UNEXPLAINED_KILL else "OUT OF MEMORY"
        return Text(SEPARATOR.join([f"✗ {word} ({outcome.post_mortem.code})", *facts]), style="bold red")
    ended = "✓ ENDED" if ending.code == 0 else "✗ FAILED"
    style = f"bold {STYLES[outcome.level]}" if ending.code == 0 else "bold red"
    return Text(SEPARATOR.join([ended, *facts]), style=style)


def _about(outcome: RunOutcome, width: int) -> Iterator[Text]:
    yield from flow("run", [shorten(" ".join(outcome.command), width - 8)], width)
    plan, steps = outcome.plan, outcome.steps
    if plan is not None:
        peak = f"peak {format_bytes(plan.device)} [{format_bytes(plan.low)} to {format_bytes(plan.high)}]"
        yield from flow("plan", [f"{plan.target} on {plan.gpu}", peak], width)
    checks = f"{outcome.checks:,} check{'s' if outcome.checks != 1 else ''}"
    seen = [checks, *([f"{steps:,} optimizer steps"] if steps is not None else [])]
    yield from flow("seen", [*seen, f"resident {format_bytes(outcome.resident)} at most"], width)


def _peaks(outcome: RunOutcome) -> Iterator[Text]:
    if not outcome.peaks:
        return
    heads = ("in use", "allocated", "reserved", "plan")
    yield Text(pad("  peaks", _NAME_CELLS) + columns(heads, _SIZE_CELLS), style="dim")
    for peak in outcome.peaks:
        name = peak.device if peak.rank is None else f"{peak.device} r{peak.rank}"
        sizes = (peak.used, peak.allocated, peak.reserved, peak.predicted)
        cells = columns(map(_size, sizes), _SIZE_CELLS)
        yield Text.assemble(pad(f"  {name}", _NAME_CELLS), cells, "  ", _against(peak))


def _against(peak: Peak) -> tuple[str, str]:
    if peak.measured is None or not peak.predicted or peak.predicted_high is None:
        return "", ""
    share = f"{100 * (peak.measured / peak.predicted - 1):+.1f} %"
    return (f"{share} !", "bold yellow") if peak.measured > peak.predicted_high else (share, "green")


def _chart(outcome: RunOutcome, width: int) -> list[Text]:
    if len(outcome.curve) < 2:
        return []
    in_use = [size for _, size, _ in outcome.curve]
    held = [size for _, _, size in outcome.curve]
    marked = in_use if any(in_use) else held
    lines = chart_lines(in_use, held, max(range(len(marked)), key=marked.__getitem__), width)
    # The last line tells of events; here each column is a time.
    legend = f"over {duration(outcome.curve[-1][0])}{SEPARATOR}█ in live blocks{SEPARATOR}░ held beside them"
    return [*lines[:-1], Text(f"{'':13}{legend}", style="dim")] if lines else []


def _changes(outcome: RunOutcome, width: int) -> Iterator[Text]:
    changes = outcome.changes
    if len(changes) < 2 and not outcome.level:
        return
    yield Text("levels", style="bold")
    for change in changes[:_CHANGES_SHOWN]:
        at = duration(change.seconds) + (f", step {change.step}" if change.step is not None else "")
        head = f"  {SYMBOLS[change.level]} {change.level.word:<9} after {at}"
        sentence = f"{head}: {change.sentence}" if change.sentence else head
        yield from (Text(line, style=STYLES[change.level]) for line in hanging("  ", sentence.strip(), width))
    if len(changes) > _CHANGES_SHOWN:
        yield Text(f"  {len(changes) - _CHANGES_SHOWN} more changes (-f json=FILE has them)", style="dim")


def _todo(outcome: RunOutcome, width: int) -> list[Text]:
    sentences = [f"{each.code} {clean(each.message)}. {each.fix}" for each in outcome.recommendations]
    return paragraphs("what to do", sentences, width)


def _post_mortem(found: PostMortem | None, width: int) -> list[Text]:
    if found is None:
        return []
    rule = RULES[found.code]
    table = (
        ("symptom", f"{found.code} {rule.title}. {clean(found.sentence)}"),
        ("cause", rule.meaning),
        ("foretold", clean(found.prediction)),
        ("fix", rule.remedy),
        ("snapshot", f"memplan snapshot {found.snapshot}" if found.snapshot else ""),
    )
    lines = [Text(line) for name, text in table if text for line in hanging(f"  {name:<10}", text, width)]
    return [Text("post-mortem", style="bold red"), *lines, *_last(found.last)]


def _last(checks: tuple[Check, ...]) -> Iterator[Text]:
    if not checks:
        return
    end, on_cpu = checks[-1].reading.seconds, checks[-1].reading.devices[0].device == "cpu"
    # The CPU has no segments, and what the kernel looks at is what the host has left.
    heads = ("in use", "allocated", "host has left" if on_cpu else "reserved")
    yield Text(f"  {'before the last':<16}{'step':>7}" + columns(heads, 14), style="dim")
    for check in checks:
        device = max(zip(check.reading.devices, check.devices, strict=True), key=lambda pair: pair[1].utilisation)[0]
        sizes = (device.in_use, device.allocated, check.reading.host.available if on_cpu else device.reserved)
        cells = columns(map(_size, sizes), 14)
        step = "-" if check.step is None else str(check.step)
        yield Text(f"  {end - check.reading.seconds:>13.1f} s {step:>7}{cells}")


def _size(size: int | None) -> str:
    return "-" if size is None else format_bytes(size)
