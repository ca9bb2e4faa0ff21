"""The gate's report as GitHub's Markdown: the comment of a pull request, or the summary of a step.

The first line is a marker that does not show, by which the comment is found again and written anew. What fails comes
first. Rows and details that would pass the limit are left out, and the report says how many.
"""

from collections.abc import Iterator, Sequence

from memplan.gate.records import GateResult, Row
from memplan.report import markdown
from memplan.report.gate.details import STATES, code, details, sentence
from memplan.report.gate.findings import limit_bytes, peak, versions
from memplan.report.gate.growth import grown
from memplan.report.gate.headline import headline
from memplan.report.gate.text import state
from memplan.units import format_bytes

MARKER = "<!-- memplan:gate -->"
SUMMARY_LIMIT = 1 << 20
"""GitHub drops a larger step summary whole (docs.github.com, "Workflow commands", "Step isolation and limits")."""
COMMENT_LIMIT = 65_536
"""GitHub refuses a longer comment ("body is too long (maximum is 65536 characters)"). We count bytes: never fewer."""
_COLUMNS = ("Verdict", "Job", "GPU", "Peak:", "Limit:", "Since the baseline:")
_CUT_BYTES = 400
"""Room for what says that something was cut."""


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
