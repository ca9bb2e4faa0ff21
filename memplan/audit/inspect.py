"""One file: read, looked through, excused, placed."""

import difflib
import re
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path

from memplan.audit.adoption import tools_in
from memplan.audit.checks.table import CHECKS, NOT_IN_TESTS
from memplan.audit.code import Code
from memplan.audit.pool_records import NO_POOLS
from memplan.audit.pool_use import pools_in
from memplan.audit.records import Edit, FileAudit, Hit, Unread
from memplan.audit.source import Source, comments, read_source
from memplan.audit.suppress import excuse
from memplan.findings.records import Finding, Place, Priority, Severity
from memplan.findings.rules import AUDIT

_ABOUT_TORCH = re.compile(r"torch|lightning|accelerate|transformers|deepspeed|diffusers|\.backward\(")
_ABOUT_POOLS = re.compile(r"(?:Pool|Allocator|Arena|pool|arena|allocator)\b")
_COMMENTS = re.compile(r"#\s*(?:memplan:|noqa)", re.IGNORECASE)
SEVERITIES: Mapping[Priority, Severity] = {"high": "error", "medium": "warning", "low": "note"}
"""Priority of a rule → how its findings count."""
_CONTEXT = 1
"""Lines around a change in a diff: the file is at hand."""


def inspect_file(path: Path, name: str, wanted: Collection[str]) -> FileAudit:
    """Look through one file, by its name in reports, for the rules of the wanted codes."""
    return inspect_source(read_source(path, name), wanted)


def inspect_source(source: Source, wanted: Collection[str]) -> FileAudit:
    """The same of what has been read."""
    text = "\n".join(source.lines)
    about_torch = _ABOUT_TORCH.search(text) is not None
    hits: list[Hit] = []
    unread: tuple[Unread, ...] = source.unread
    pools = NO_POOLS
    if source.tree is not None and (about_torch or _ABOUT_POOLS.search(text)):
        try:
            code = Code(source.tree, list(source.lines), source.file)
            rules = [rule for rule in CHECKS if rule in wanted and not (code.is_test and rule in NOT_IN_TESTS)]
            found = [each for rule in rules for each in CHECKS[rule](code)]
            pools = pools_in(code)
            hits = list({(each.code, each.line, each.column, each.message): each for each in found}.values())
        except RecursionError:
            unread += (Unread(file=source.file, cell=None, line=1, problem="nested too deeply"),)
    excused = excuse(hits, comments(source.lines) if _COMMENTS.search(text) and source.tree else {}, wanted)
    return FileAudit(
        file=source.file,
        lines=len(source.lines),
        findings=tuple(_finding(source, hit) for hit in excused.hits),
        suppressed=excused.suppressed,
        unread=unread,
        tools=tools_in(text),
        about_torch=about_torch,
        pools=pools,
    )


def _finding(source: Source, hit: Hit) -> Finding:
    cell, line = source.place(hit.line)
    _, end_line = source.place(hit.end_line)
    place = Place(
        file=source.file,
        cell=cell,
        line=line,
        column=hit.column + 1,
        end_line=end_line,
        end_column=hit.end_column + 1,
        text=source.lines[hit.line - 1] if source.lines else "",
    )
    return Finding(
        code=hit.code,
        severity=SEVERITIES[AUDIT[hit.code].priority],
        message=hit.message,
        place=place,
        fix=AUDIT[hit.code].remedy,
        diff=_diff(source, hit.edits) if cell is None else "",
    )


def _diff(source: Source, edits: Sequence[Edit]) -> str:
    if not edits:
        return ""
    before = [f"{line}\n" for line in source.lines]
    after = edited(source.lines, edits)
    name = source.file.replace("\n", "?").lstrip("/")
    return "".join(difflib.unified_diff(before, after.splitlines(keepends=True), f"a/{name}", f"b/{name}", n=_CONTEXT))


def edited(lines: Sequence[str], edits: Sequence[Edit]) -> str:
    """A text with its edits made, the last one first so that places stay what they are."""
    text = "".join(f"{line}\n" for line in lines)
    starts = [0]
    for line in lines:
        starts.append(starts[-1] + len(line) + 1)
    for each in sorted(edits, key=lambda one: (one.line, one.column), reverse=True):
        begin, end = starts[each.line - 1] + each.column, starts[each.end_line - 1] + each.end_column
        text = text[:begin] + each.text + text[end:]
    return text
