"""The audit's text report: a summary, then every finding with its line and what to do, and the answer last."""

from collections.abc import Iterator

from rich.text import Text

from memplan.audit.inspect import TOOLS
from memplan.audit.records import Audit
from memplan.findings.identity import identified
from memplan.findings.records import Finding, Place, Priority
from memplan.findings.rules import AUDIT
from memplan.report.audit import pools
from memplan.report.audit.findings import answer, by_rule, counts, in_words, place, worst_files
from memplan.report.draw.layout import SEPARATOR, bounded, hanging, pad, spread, stacked
from memplan.text import clean, shorten

_STYLES: dict[Priority, str] = {"high": "bold red", "medium": "yellow", "low": "cyan"}
_FILES_SHOWN = 5
_TOOL_CELLS = 40
_POOL_CELLS = 20
_INSIDE = "       "


def render(audit: Audit, *, width: int = 80, quiet: bool = False, diffs: bool = False) -> list[Text]:
    """Write an audit as lines of styled text: ``quiet`` a line for each finding, ``diffs`` with changes that mend.

    Returns:
        Lines without line breaks; the last is the answer.
    """
    width = bounded(width)
    found = identified(audit.findings)
    if quiet:
        return stacked([[_one_line(each, width) for each in found], [_answer(audit, width)]], width)
    blocks = [
        _head(audit, width),
        _adoption(audit, width),
        _pools(audit, width),
        _rules(audit, width),
        _files(audit, width),
        *(list(_finding(each, width, diffs=diffs)) for each in found),
        _unread(audit, width),
        [_answer(audit, width)],
    ]
    return stacked(blocks, width)


def _head(audit: Audit, width: int) -> list[Text]:
    lines = sum(file.lines for file in audit.files)
    torch = sum(file.about_torch for file in audit.files)
    facts = [f"{_number(len(audit.files), 'file')}, {torch} about PyTorch", f"{lines:,} lines"]
    return [
        Text.assemble(("memplan audit  ", "bold"), shorten(SEPARATOR.join(map(clean, audit.paths)), width - 15)),
        Text(SEPARATOR.join(facts), style="dim"),
    ]


def _number(count: int, what: str) -> str:
    return f"{count:,} {what}{'' if count == 1 else 's'}"


def _adoption(audit: Audit, width: int) -> list[Text]:
    used = audit.adoption
    if not any(file.about_torch for file in audit.files):
        return []
    lines = [
        spread(Text(f"  {pad(tool, _TOOL_CELLS)}"), Text(_number(number, "file")), width - 2)
        for tool, number in used.items()
    ]
    missing = [tool for tool in TOOLS if tool not in used]
    rest = [Text(line, style="dim") for line in hanging("  nowhere: ", ", ".join(missing), width)] if missing else []
    return [Text("memory tools in use", style="bold"), *lines, *rest]


def _pools(audit: Audit, width: int) -> list[Text]:
    rows = [
        line
        for name, what in pools.rows(audit.pools)
        for line in hanging(f"  {pad(name, _POOL_CELLS)} ", clean(what), width)
    ]
    remarks = [line for each in pools.remarks(audit.pools) for line in hanging("  ? ", clean(each), width)]
    if not rows:
        return []
    return [Text("pools of memory", style="bold"), *map(Text, rows), *(Text(line, style="yellow") for line in remarks)]


def _rules(audit: Audit, width: int) -> list[Text]:
    rows = []
    for code, number in by_rule(audit).items():
        rule = AUDIT[code]
        left = Text.assemble(f"  {code}  ", (f"{rule.priority:6}", _STYLES[rule.priority]), f"  {rule.title}")
        rows.append(spread(left, Text(str(number)), width - 2))
    return [Text("findings by rule", style="bold"), *rows] if rows else []


def _files(audit: Audit, width: int) -> list[Text]:
    found = worst_files(audit)
    if len(found) < 2:
        return []
    rows = [
        spread(Text(f"  {shorten(name, width - 32)}"), Text(in_words(numbers)), width - 2)
        for name, numbers in found[:_FILES_SHOWN]
    ]
    more = len(found) - _FILES_SHOWN
    rest = [Text(f"  and {more} more", style="dim")] if more > 0 else []
    return [Text("files with the most", style="bold"), *rows, *rest]


def _one_line(finding: Finding, width: int) -> Text:
    rule = AUDIT[finding.code]
    head = f"{place(finding.place)}  "
    return Text.assemble(shorten(head, width - 8), (f"{finding.code} ", _STYLES[rule.priority]), clean(rule.title))


def _finding(finding: Finding, width: int, *, diffs: bool) -> Iterator[Text]:
    where, priority = finding.place, AUDIT[finding.code].priority
    style = _STYLES[priority]
    yield spread(
        Text.assemble((f"{finding.code}  ", style), (shorten(place(where), width - 18), "bold")),
        Text(priority, style=style), width,
    )  # fmt: skip
    yield from (Text(line) for line in hanging(_INSIDE, clean(finding.message), width))
    yield from _frame(where, style, width)
    yield from (Text(line, style="dim") for line in hanging(f"{_INSIDE}do: ", finding.fix, width))
    if diffs and finding.diff:
        yield from (Text(_INSIDE + shorten(line, width - len(_INSIDE)), style=_diff_style(line))
                    for line in finding.diff.splitlines())  # fmt: skip


def _frame(where: Place, style: str, width: int) -> Iterator[Text]:
    """The line, and what of it is meant."""
    bare = where.text.lstrip()
    indent = len(where.text) - len(bare)
    number = f"{where.line:>5} │ "
    room = width - len(number) - 2
    if not bare:
        return
    start = max(0, (where.column or 1) - 1 - indent)
    end = len(bare.rstrip()) if (where.end_line or 0) > where.line else (where.end_column or 1) - 1 - indent
    end = min(max(end, start + 1), room)
    yield Text.assemble((f"  {number}", "dim"), clean(bare[:room]))
    if start < room and bare.isascii():
        yield Text.assemble((f"  {'':5} │ ", "dim"), " " * start, ("^" * (end - start), style))


def _diff_style(line: str) -> str:
    return {"+": "green", "-": "red"}.get(line[:1], "dim")


def _unread(audit: Audit, width: int) -> list[Text]:
    lines = [
        Text(line)
        for each in audit.unread
        for line in hanging("  - ", f"{clean(place(each))}: {clean(each.problem)}", width)
    ]
    return [Text("not read", style="bold magenta"), *lines] if lines else []


def _answer(audit: Audit, width: int) -> Text:
    numbers = counts(audit)
    worst = next((priority for priority, number in numbers.items() if number), None)
    style = _STYLES[worst] if worst else "bold green"
    excused = sum(file.suppressed for file in audit.files)
    extra = [f"{excused} excused"] if excused else []
    extra += [f"{len(audit.unread)} not read"] if audit.unread else []
    left = ", ".join([answer(audit), *extra])
    return spread(
        Text.assemble(("✗ " if worst else "✓ ", style), (left, style)), Text(f"{audit.seconds:.1f} s", "dim"), width
    )
