"""The gate's text report: a verdict for every job and GPU with its cause, and the answer last."""

from collections.abc import Iterator, Sequence

from rich.cells import cell_len
from rich.text import Text

from memplan.findings.records import Finding
from memplan.gate.compare import with_figures
from memplan.gate.records import GateResult, Row
from memplan.report.draw.layout import SEPARATOR, bounded, hanging, pad, spread, stacked
from memplan.report.gate.growth import change, grown, growth_lines
from memplan.text import clean, shorten
from memplan.units import format_bytes

GROWTH_SHOWN = 5
STATES = {
    "passed": ("✓", "PASSED", "bold green"),
    "warned": ("!", "WARNING", "bold yellow"),
    "failed": ("✗", "FAILED", "bold red"),
    "unknown": ("?", "UNKNOWN", "bold magenta"),
}
"""State of a row → symbol, word, style. Colour only repeats what the word says."""
_STYLES = {"error": "red", "warning": "yellow", "note": "dim"}
_JOB_CELLS, _GPU_CELLS = 20, 14
_DETAIL = "    "


def render(result: GateResult, *, width: int = 80, quiet: bool = False) -> list[Text]:
    """Write what the gate found as lines of styled text.

    Returns:
        Lines without line breaks; the last is the answer.
    """
    width = bounded(width)
    cells = name_cells([(row.job, row.gpu) for row in result.rows])
    rows = [[_row_line(row, cells, width), *([] if quiet else _details(row, width))] for row in result.rows]
    blocks = [] if quiet else [_title(result, width)]
    # A row without anything to say takes one line, and no empty one after it.
    blocks += [[line for block in rows for line in block]]
    if not quiet:
        blocks.append([Text(line) for note in result.notes for line in hanging("note: ", clean(note), width)])
    return stacked([*blocks, [_answer(result, width)]], width)


def state(row: Row) -> str:
    """Key of ``STATES``: the outcome, or ``warned`` where an informational job would have failed."""
    warned = row.outcome == "passed" and any(finding.severity == "warning" for finding in row.findings)
    return "warned" if warned else row.outcome


def counts(result: GateResult) -> str:
    """The answer in words: ``1 of 4 failed, 1 unknown``."""
    states = [state(row) for row in result.rows]
    failed, unknown, warned = (states.count(name) for name in ("failed", "unknown", "warned"))
    parts = [f"{failed} of {len(states)} failed"] if failed else []
    parts += [f"{unknown} unknown" if failed else f"{unknown} of {len(states)} unknown"] if unknown else []
    parts = parts or ["passed" if len(states) == 1 else f"all {len(states)} passed"]
    return ", ".join([*parts, *([f"{warned} only told"] if warned else [])])


def _title(result: GateResult, width: int) -> list[Text]:
    baseline = f"compared with {result.baseline}" if result.baseline else "no baseline"
    lines = [Text(line) for line in hanging(_NAME, clean(SEPARATOR.join([str(result.project), baseline])), width)]
    lines[0].stylize("bold", 0, len(_NAME))
    return lines


_NAME = "memplan gate  "


def _row_line(row: Row, cells: tuple[int, int], width: int) -> Text:
    symbol, word, style = STATES[state(row)]
    left = Text.assemble(
        (f"{symbol} {word:7}", style), f"  {pad(row.job, cells[0])}  {pad(row.gpu, cells[1])}  {_figure(row)}"
    )
    more = row.comparison.grown if row.comparison else 0
    return spread(left, Text(change(more) if more else "", style="dim"), width)


def _figure(row: Row) -> str:
    estimate = with_figures(row.estimate)
    if estimate is None:
        return "no figure"
    limit = row.limit if row.limit is not None else estimate.gpu.usable_bytes
    peak = format_bytes(estimate.peak.device_bytes)
    return f"{peak} of {format_bytes(limit)}" if limit else peak


def _details(row: Row, width: int) -> Iterator[Text]:
    for finding in row.findings:
        yield from _finding(finding, width)
    comparison = row.comparison
    if comparison is not None and comparison.grown > 0 and any(each.severity != "note" for each in row.findings):
        words = f"grown since the baseline: {grown(comparison)}"
        yield Text(f"{_DETAIL}{words}", style="dim")
        yield from growth_lines(comparison, width, shown=GROWTH_SHOWN, indent=_DETAIL + "  ")


def _finding(finding: Finding, width: int) -> Iterator[Text]:
    style = _STYLES[finding.severity]
    for index, line in enumerate(hanging(f"{_DETAIL}{finding.code}  ", finding.message, width)):
        head, rest = line[: len(_DETAIL) + 5], line[len(_DETAIL) + 5 :]
        yield Text.assemble((head, f"bold {style}" if index == 0 else ""), rest)
    inside = _DETAIL + "       "
    if finding.severity != "note":
        yield Text(inside + shorten(f"at {finding.place.file}:{finding.place.line}", width - len(inside)), style="dim")
    yield from (Text(line) for line in hanging(inside, finding.fix, width) if finding.fix)


def _answer(result: GateResult, width: int) -> Text:
    states = {state(row) for row in result.rows}
    worst = next((name for name in ("failed", "unknown", "warned") if name in states), "passed")
    symbol, _, style = STATES[worst]
    cached = sum(row.cached for row in result.rows)
    left = Text.assemble((f"{symbol} {counts(result)}", style))
    took = f"{result.seconds:.1f} s" + (f", {cached} of {len(result.rows)} unchanged" if cached else "")
    return spread(left, Text(took, style="dim"), width)


def name_cells(names: Sequence[tuple[str, str]]) -> tuple[int, int]:
    """Widths of the columns of jobs and of GPUs."""
    jobs, gpus = (max((cell_len(pair[index]) for pair in names), default=0) for index in (0, 1))
    return min(_JOB_CELLS, jobs), min(_GPU_CELLS, gpus)
