"""``memplan audit``: memory hazards in training code, found without running it."""

import importlib
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from memplan.cli import check, console, options, outputs
from memplan.errors import ExitCode, UsageError
from memplan.files.read import real
from memplan.findings.formats import FORMATS as FINDING_FORMATS
from memplan.findings.records import PRIORITIES

if TYPE_CHECKING:
    from rich.text import Text

    from memplan.audit.records import Audit
    from memplan.findings.records import Findings

RENDERERS = {
    "json": "memplan.report.audit.json",
    "markdown": "memplan.report.audit.markdown",
    **FINDING_FORMATS,
}
"""Format → module whose ``render`` makes one text of an ``Audit``, or of its findings (``FINDING_FORMATS``)."""
FORMATS = ("text", *RENDERERS)

Paths = Annotated[
    list[Path] | None,
    typer.Argument(metavar="[PATH]...", help="Files and folders; none: the working directory.", show_default=False),
]
Select = Annotated[
    list[str] | None,
    options.option(
        "select", None, "Only these rules: MA011, or MA0 for all that begin so. Repeatable.", metavar="CODE"
    ),
]
Ignore = Annotated[list[str] | None, options.option("ignore", None, "All rules but these. Repeatable.", metavar="CODE")]
Exclude = Annotated[
    list[str] | None,
    options.option("exclude", None, "Leave out paths like this: 'tests', 'legacy/*', '*_pb2.py'. Repeatable.",
                   metavar="PATTERN"),
]  # fmt: skip
Severity = Annotated[
    str | None,
    options.option("severity", None, "Only findings of this priority or a higher one: high, medium, low.",
                   metavar="PRIORITY", default="low"),
]  # fmt: skip
AtOnce = Annotated[
    int | None, options.option("jobs", None, "Processes at once.", metavar="N", default="one for each processor")
]
Formats = Annotated[list[str] | None, options.formats(f"{', '.join(FORMATS)};")]
Diff = Annotated[bool, options.option("diff", options.REPORT, "Show changes that mend a finding, where that is safe.")]
Quiet = Annotated[bool, options.option("quiet", options.REPORT, "One line for each finding.", short="-q")]
FailOn = Annotated[
    str | None,
    typer.Option("--fail-on", metavar="PRIORITY", rich_help_panel=options.REPORT, show_default=False,
                 help="Exit 1 at a finding of this priority or a higher one: high, medium, low. (default: never)"),
]  # fmt: skip


def audit(
    paths: Paths = None,
    *,
    select: Select = None,
    ignore: Ignore = None,
    exclude: Exclude = None,
    severity: Severity = None,
    jobs: AtOnce = None,
    formats: Formats = None,
    diff: Diff = False,
    as_json: options.AsJson = False,
    quiet: Quiet = False,
    fail_on: FailOn = None,
) -> None:
    """Find memory hazards in training code, and run none of it.

    Python files and notebooks. A comment excuses a finding: # memplan: ignore[MA001].
    """
    from memplan.audit.run import audit as audit_paths
    from memplan.audit.walk import wanted_rules
    from memplan.findings.rules import AUDIT

    problems = check.Problems()
    wanted: Sequence[outputs.Output] = problems.of(outputs.parse_outputs, formats or [], as_json, FORMATS) or ()
    _check_files(problems, wanted)
    rules = problems.of(wanted_rules, tuple(AUDIT), select or (), ignore or ()) or ()
    for flag, value in (("--severity", severity), ("--fail-on", fail_on)):
        if value is not None and value not in PRIORITIES:
            problems.add(f"{flag} must be one of {', '.join(PRIORITIES)}, not '{value}'")
    if jobs is not None and jobs < 1:
        problems.add(f"--jobs must be at least 1, not {jobs}")
    places = paths or [Path()]
    for path in places:
        if not path.exists():
            problems.add(f"there is no file or folder '{path}'")
    problems.raise_if_any()
    shown = [code for code in rules if _is_at_least(AUDIT[code].priority, severity or "low")]
    with console.progress() as tell:
        if tell:
            tell("reading")
        found = audit_paths(places, rules=shown, exclude=exclude or (), jobs=jobs)
    if not found.files:
        raise UsageError("there is no Python file or notebook to look through", hint="name a file, or another folder")
    for output in wanted:
        _write(output, found, quiet=quiet, diff=diff)
    raise typer.Exit(exit_code(found, fail_on))


def exit_code(found: "Audit", fail_on: str | None) -> ExitCode:
    """1 where ``--fail-on`` says so, else 0."""
    from memplan.findings.rules import AUDIT

    failed = fail_on is not None and any(_is_at_least(AUDIT[each.code].priority, fail_on) for each in found.findings)
    return ExitCode.POLICY if failed else ExitCode.DONE


def _is_at_least(priority: str, threshold: str) -> bool:
    order: tuple[str, ...] = PRIORITIES
    return order.index(priority) <= order.index(threshold)


def _check_files(problems: check.Problems, wanted: Sequence[outputs.Output]) -> None:
    files = [real(output.file) for output in wanted if output.file]
    if len(set(files)) < len(files):
        problems.add("two reports would be written to one file")


def _write(output: outputs.Output, found: "Audit", *, quiet: bool, diff: bool) -> None:
    def rendered() -> str:
        # What is read beside the repository names files from its root.
        shown = found if output.format == "json" else _in_repository(found)
        content = _findings_of(shown) if output.format in FINDING_FORMATS else shown
        text: str = importlib.import_module(RENDERERS[output.format]).render(content)
        return text

    def lines(width: int) -> "list[Text]":
        from memplan.report.audit.text import render

        return render(found, width=width, quiet=quiet, diffs=diff)

    others: dict[str, Any] = dict.fromkeys(RENDERERS, rendered)
    outputs.write_rendered(output, text=lines, **others)


def _findings_of(found: "Audit") -> "Findings":
    from memplan.report.audit.findings import findings_of

    return findings_of(found)


def _in_repository(found: "Audit") -> "Audit":
    from memplan.audit.run import in_repository

    return in_repository(found, Path())
