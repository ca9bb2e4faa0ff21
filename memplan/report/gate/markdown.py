"""The gate's report as GitHub's Markdown: the comment of a pull request, or the summary of a step.

The first line is a marker that does not show, by which the comment is found again and written anew. What fails comes
first. Rows and details that would pass the limit are left out, and the report says how many.
"""

from collections.abc import Iterator, Sequence

from memplan.findings.records import Finding
from memplan.findings.rules import RULES
from memplan.gate.compare import with_figures
from memplan.gate.records import GateResult, Growth, Row
from memplan.measure.records import Advice
from memplan.report import markdown
from memplan.report.estimate.verdict import ADVICE_SHOWN
from memplan.report.gate.findings import category, limit_bytes, module, peak, short_source, versions
from memplan.report.gate.growth import category_changes, change, elsewhere, grouped_growth, grown
from memplan.report.gate.headline import headline
from memplan.report.gate.text import state
from memplan.report.labels import LABELS
from memplan.text import shorten
from memplan.units import format_bytes

MARKER = "<!-- memplan:gate -->"
SUMMARY_LIMIT = 1 << 20
"""GitHub drops a larger step summary whole (docs.github.com, "Workflow commands", "Step isolation and limits")."""
COMMENT_LIMIT = 65_536
"""GitHub refuses a longer comment ("body is too long (maximum is 65536 characters)"). We count bytes: never fewer."""
_COLUMNS = ("Verdict", "Job", "GPU", "Peak:", "Limit:", "Since the baseline:")
_CUT_BYTES = 400
"""Room for what says that something was cut."""
STATES = {
    "failed": ("❌", "failed"),
    "unknown": ("❓", "unknown"),
    "warned": ("⚠️", "warning"),
    "passed": ("✅", "passed"),
}
"""State of a row → symbol and word, the worst first."""
GROWTH_SHOWN = 10
"""Modules of each job."""
_NAME_CELLS, _SENTENCE_CELLS = 120, 600
Seen = dict[tuple[str, tuple[Growth, ...]], str]
"""Job and growth → the GPU on which it was told."""


def render(result: GateResult, *, limit: int = SUMMARY_LIMIT) -> str:
    """Write what the gate found in fewer bytes than a limit; files relative to the repository's root."""
    order = list(STATES)
    rows = sorted(result.rows, key=lambda row: order.index(state(row)))
    head, foot = _head(result, rows), _foot(result)
    room = limit - _CUT_BYTES - _size([*head, *foot])
    lines = [markdown.table_row(_cells(row)) for row in rows]
    shown = _fitting(lines, room // 2)
    blocks = [*details(rows), *(f"\n- note: {sentence(note)}" for note in result.notes)]
    told_of = _fitting(blocks, room - _size(shown))
    left = {"rows": (len(lines) - len(shown), len(lines)), "details": (len(blocks) - len(told_of), len(blocks))}
    return "\n".join([*head, *shown, *told_of, *_cut(left, limit), *foot]) + "\n"


def _head(result: GateResult, rows: Sequence[Row]) -> list[str]:
    symbol, _ = STATES[state(rows[0])] if rows else STATES["unknown"]
    compared = f"compared with {code(result.baseline.as_posix())}" if result.baseline else "no baseline"
    return [
        MARKER,
        f"### {symbol} memplan: {sentence(headline(result))}",
        "",
        f"{code(result.project.as_posix())}, {compared}",
        "",
        *markdown.table(_COLUMNS, ()),
    ]


def _cells(row: Row) -> tuple[str, ...]:
    limit = limit_bytes(row)
    return (
        " ".join(STATES[state(row)]),
        code(row.job),
        code(row.gpu),
        peak(row),
        format_bytes(limit) if limit is not None else "",
        grown(row.comparison) if row.comparison else "",
    )


def _foot(result: GateResult) -> list[str]:
    made = [f"{package} {version}" for package, version in versions(result).items()]
    cached = sum(row.cached for row in result.rows)
    took = f"{result.seconds:.1f} s" + (f", {cached} of {len(result.rows)} unchanged" if cached else "")
    codes = sorted({finding.code for row in result.rows for finding in row.findings})
    explained = [f"{code(f'memplan explain {codes[0]}')} tells more"] if codes else []
    return ["", f"<sub>{' · '.join([*map(sentence, made), took, *explained])}</sub>"]


def _cut(left: dict[str, tuple[int, int]], limit: int) -> Iterator[str]:
    told_of = " and ".join(f"{missing} of {total} {what}" for what, (missing, total) in left.items() if missing)
    if told_of:
        where = "The text report has them."
        yield from ("", f"**Cut:** {told_of} are left out to stay below {format_bytes(limit)}. {where}")


def _fitting(texts: Sequence[str], room: int) -> Sequence[str]:
    """The first that have room."""
    for count, text in enumerate(texts):
        room -= _size([text])
        if room < 0:
            return texts[:count]
    return texts


def _size(lines: Sequence[str]) -> int:
    return sum(len(line.encode()) + 1 for line in lines)


def details(rows: Sequence[Row]) -> Iterator[str]:
    """A block for each row of which there is something to say; folded where it passes."""
    seen: Seen = {}
    for row in rows:
        lines = [*_findings(row.findings), *_growth(row, seen), *_advice(row), *_categories(row)]
        if not lines:
            continue
        if state(row) == "passed":
            names = " on ".join(markdown.html_code(shorten(each, _NAME_CELLS)) for each in (row.job, row.gpu))
            yield "\n".join(["", f"<details><summary>{names}</summary>", *lines, "", "</details>"])
        else:
            yield "\n".join(["", f"#### {STATES[state(row)][0]} {code(row.job)} on {code(row.gpu)}", *lines])


def code(text: str) -> str:
    """A name as code, cut in its middle where it is long."""
    return markdown.code(shorten(text, _NAME_CELLS))


def sentence(text: str) -> str:
    """A sentence, cut in its middle where it is long."""
    return markdown.sentence(shorten(" ".join(text.split()), _SENTENCE_CELLS))


def _findings(findings: Sequence[Finding]) -> Iterator[str]:
    yield from [""] if findings else []
    for finding in findings:
        rule = RULES.get(finding.code)
        title = f"**{sentence(finding.code)}**" + (f" {rule.title}" if rule else "")
        at = "" if finding.severity == "note" else f", at {code(f'{finding.place.file}:{finding.place.line}')}"
        fix = f"<br>→ {sentence(finding.fix)}" if finding.fix.strip() else ""
        yield f"- {title}: {sentence(finding.message)}{at}{fix}"


def _growth(row: Row, seen: Seen) -> Iterator[str]:
    """What grew; a job that grows alike on several GPUs tells it once."""
    comparison = row.comparison
    if comparison is None or not comparison.growth:
        return
    first = seen.setdefault((row.job, comparison.growth), row.gpu)
    if first != row.gpu:
        yield from ("", f"What grew: the same as on {code(first)}.")
        return
    groups = grouped_growth(comparison.growth)
    yield from ("", f"Since the baseline: {grown(comparison)}", "")
    columns = ("Change:", "Category", "Module", "Before:", "After:", "Line")
    yield from markdown.table(columns, map(_module, groups[:GROWTH_SHOWN]))
    rest = groups[GROWTH_SHOWN:]
    if rest:
        yield from ["", f"… and {change(sum(one.grown for one in rest))} {elsewhere(len(rest))}"]


def _module(each: Growth) -> tuple[str, ...]:
    sizes = (format_bytes(each.before), format_bytes(each.after))
    return change(each.grown), sentence(category(each)), code(module(each)), *sizes, code(short_source(each.source))


def _advice(row: Row) -> Iterator[str]:
    estimate = with_figures(row.estimate)
    if estimate is None or not estimate.advice or state(row) == "passed":
        return
    limit = limit_bytes(row)
    yield from ("", "What would help:", "")
    rows = (_change(advice, limit) for advice in estimate.advice[:ADVICE_SHOWN])
    yield from markdown.table(("Change", "Peak:", "Time:", "Within the limit"), rows)


def _change(advice: Advice, limit: int | None) -> tuple[str, ...]:
    time = f"{100 * advice.slowdown:+.0f} %" if abs(advice.slowdown) >= 0.005 else "same"
    within = "yes" if limit is None or advice.device_bytes <= limit else "no"
    return markdown.code(shorten(advice.change, _SENTENCE_CELLS)), format_bytes(advice.device_bytes), time, within


def _categories(row: Row) -> Iterator[str]:
    """The peak by category, folded: what changed since the baseline, else all; nothing of a row that just passes."""
    estimate = with_figures(row.estimate)
    changes = category_changes(row.comparison) if row.comparison else {}
    if estimate is None or (state(row) == "passed" and not changes):
        return
    yield from ("", "<details><summary>The peak by category</summary>", "")
    if changes:
        cells = ((sentence(word), format_bytes(old), format_bytes(new), change(new - old))
                 for word, (old, new) in changes.items())  # fmt: skip
        yield from markdown.table(("Category", "Before:", "After:", "Change:"), cells)
    else:
        sizes = (
            (sentence(LABELS.get(key, key)), format_bytes(size)) for key, size in estimate.breakdown.items() if size
        )
        yield from markdown.table(("Category", "Bytes:"), sizes)
    yield from ("", "</details>")
