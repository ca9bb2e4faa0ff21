"""What changed between two sets of estimates: text for a terminal, Markdown for a pull request."""

from collections.abc import Iterator

from rich.text import Text

from memplan.gate.compare import Diff, RowChange, with_figures
from memplan.gate.records import Growth
from memplan.measure.records import Estimate
from memplan.report.draw.layout import bounded, file_name, hanging, pad, source_line, spread, stacked
from memplan.report.estimate.owners import TOP_LEVEL
from memplan.report.gate.growth import category_changes, change, elsewhere, grouped_growth, grown, growth_lines
from memplan.report.gate.text import name_cells
from memplan.report.labels import LABEL_CELLS, LABELS
from memplan.report.markdown import code, html_code, sentence, table
from memplan.text import clean, shorten
from memplan.units import format_bytes

SHOWN = 10
"""Modules of each job in the text; Markdown shows as many."""
_SOURCE_CELLS = 56
"""A longer source line is told without its folders."""


def render(diff: Diff, *, width: int = 80, quiet: bool = False) -> list[Text]:
    """Write what changed as lines of styled text; quiet: a line for each job. The last one is the answer."""
    width = bounded(width)
    title = Text.assemble(("memplan diff  ", "bold"), shorten(f"{diff.base} → {diff.head}", width - 14))
    cells = name_cells([(each.job, each.gpu) for each in diff.changes])
    blocks = [[_line(each, cells, width), *([] if quiet else _details(each, width))] for each in diff.changes]
    lines = [line for block in blocks for line in block]
    said = [Text(line, style="bold") for line in hanging("", answer(diff), width)]
    return stacked([[title], lines, said], width)


def answer(diff: Diff) -> str:
    """The answer in words."""
    grown = [each for each in diff.changes if each.grown > 0]
    shrunk = sum(each.grown < 0 for each in diff.changes)
    parts = []
    if grown:
        most = grown[0]
        largest = f"{most.job} on {most.gpu} by {format_bytes(most.grown)}"
        parts.append(f"{len(grown)} of {len(diff.changes)} grew, {largest}")
    parts += [f"{shrunk} shrank"] if shrunk else []
    new, gone = (sum(getattr(each, side) is None for each in diff.changes) for side in ("before", "after"))
    unknown = sum(each.comparison is None for each in diff.changes) - new - gone
    counted = {"new": new, "gone": gone, "without a figure": unknown}
    parts += [f"{count} {words}" for words, count in counted.items() if count]
    return clean(", ".join(parts) or "nothing changed")


def _line(each: RowChange, cells: tuple[int, int], width: int) -> Text:
    names = f"{pad(each.job, cells[0])}  {pad(each.gpu, cells[1])}"
    left = f"{names}  {_peak(each.before)} → {_peak(each.after)}"
    return spread(Text(left), Text(_verdicts(each)), width)


def _peak(estimate: Estimate | None) -> str:
    if estimate is None:
        return "none"
    return format_bytes(estimate.peak.device_bytes) if with_figures(estimate) else "no figure"


def _verdicts(each: RowChange) -> str:
    before, after = (str(one.verdict).upper() if one else "" for one in (each.before, each.after))
    return after if before == after or not before or not after else f"{before} → {after}"


def _details(each: RowChange, width: int) -> Iterator[Text]:
    comparison = each.comparison
    if comparison is None or not (comparison.grown or comparison.growth):
        return
    total = grown(comparison) if comparison.grown else "same peak"
    yield Text(f"  {total}", style="bold")
    for words, (before, after) in category_changes(comparison).items():
        sizes = f"{format_bytes(before)} → {format_bytes(after)}"
        yield Text(f"    {words:{LABEL_CELLS}}  {change(after - before):>13}  {sizes}")
    if comparison.growth:
        yield Text("  by module", style="dim")
        yield from growth_lines(comparison, width, shown=SHOWN, indent="    ")


def render_markdown(diff: Diff) -> str:
    """Write what changed as GitHub's Markdown."""
    lines = [f"### memplan: {sentence(diff.base)} → {sentence(diff.head)}", "", f"**{sentence(answer(diff))}**", ""]
    lines += table(("Job", "GPU", "Peak before", "Peak after", "Change", "Verdict"), map(_sentences, diff.changes))
    for each in diff.changes:
        lines += _markdown_details(each)
    return "\n".join(lines) + "\n"


def row_cells(each: RowChange) -> tuple[str, ...]:
    """Job, GPU, peaks before and after, change, verdict."""
    more = grown(each.comparison) if each.comparison and each.grown else ""
    return each.job, each.gpu, _peak(each.before), _peak(each.after), more, _verdicts(each)


def _sentences(each: RowChange) -> tuple[str, ...]:
    job, gpu, *figures = row_cells(each)
    return sentence(job), sentence(gpu), *figures


def _markdown_details(each: RowChange) -> Iterator[str]:
    comparison = each.comparison
    if comparison is None or not comparison.growth:
        return
    yield from ("", f"<details><summary>{html_code(each.job)} on {html_code(each.gpu)}</summary>", "")
    changes = category_changes(comparison).items()
    rows = ((words, format_bytes(old), format_bytes(new), change(new - old)) for words, (old, new) in changes)
    yield from table(("Category", "Before", "After", "Change"), rows)
    yield ""
    groups = grouped_growth(comparison.growth)
    yield from table(("Change", "Category", "Module", "Line"), map(_module, groups[:SHOWN]))
    rest = groups[SHOWN:]
    if rest:
        yield from ["", f"… and {change(sum(one.grown for one in rest))} {elsewhere(len(rest))}"]
    yield from ("", "</details>")


def _module(each: Growth) -> tuple[str, ...]:
    category = LABELS.get(each.category, each.category)
    return change(each.grown), category, code(each.module or TOP_LEVEL), code(_source(each.source))


def _source(source: str) -> str:
    return source if len(source) <= _SOURCE_CELLS else file_name(source_line(source))
