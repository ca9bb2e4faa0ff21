"""``memplan gate``: is every job of the project within its budget?"""

import importlib
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from memplan.cli import check, console, groups, options, outputs
from memplan.errors import ExitCode, UsageError
from memplan.files.read import is_file, real
from memplan.findings.formats import FORMATS as FINDING_FORMATS

if TYPE_CHECKING:
    from rich.text import Text

    from memplan.gate.records import GateResult
    from memplan.project.records import Project

RENDERERS = {
    "json": "memplan.report.gate.json",
    "html": "memplan.report.html.gate",
    "markdown": "memplan.report.gate.markdown",
    "comment": "memplan.report.gate.comment",
    **FINDING_FORMATS,
    "junit": "memplan.report.gate.junit",
    "prometheus": "memplan.report.gate.prometheus",
    "badge": "memplan.report.gate.badge",
}
"""Format → module whose ``render`` makes one text of a ``GateResult``, or of its findings (``FINDING_FORMATS``)."""
FORMATS = ("text", *RENDERERS)

Jobs = Annotated[
    list[str] | None, typer.Argument(metavar="[JOB]...", help="Names of jobs; none: all.", show_default=False)
]
ProjectFile = Annotated[
    Path | None,
    options.option("project", None, "Project file.", metavar="FILE",
                   default="memplan.toml, or [tool.memplan] of pyproject.toml, here or above"),
]  # fmt: skip
Baseline = Annotated[
    Path | None, options.option("baseline", None, "Accepted figures.", metavar="FILE", default="the project's own")
]
UpdateBaseline = Annotated[
    bool, options.option("update_baseline", None, "Write the figures of all that passes into the baseline.")
]
FailOn = Annotated[
    str | None,
    options.option("fail_on", None, "Fail at this verdict or a worse one:", metavar="VERDICT",
                   default="the job's own, oom"),
]  # fmt: skip
AtOnce = Annotated[
    int | None, options.option("jobs", None, "Jobs run at once.", metavar="N", default="one for each processor")
]
Formats = Annotated[list[str] | None, options.formats(f"{', '.join(FORMATS)};")]
Timeline = Annotated[
    bool, options.option("timeline", options.REPORT, "Put the timelines of the HTML page into JSON, too.")
]
ExitZero = Annotated[bool, options.option("exit_zero", options.REPORT, "Exit 0 whatever is found.")]


@groups.spread
def gate(
    wanted_jobs: Jobs = None,
    *,
    project: ProjectFile = None,
    gpu: options.GpusInstead = None,
    profile_dir: options.ProfileDirs = None,
    fail_on: FailOn = None,
    baseline: Baseline = None,
    update_baseline: UpdateBaseline = False,
    jobs: AtOnce = None,
    cache: groups.CacheOptions,
    formats: Formats = None,
    timeline: Timeline = False,
    as_json: options.AsJson = False,
    quiet: options.Quiet = False,
    exit_zero: ExitZero = False,
) -> None:
    """Judge every job of the project file by its budget.

    Exit 1 where one is over it, 3 where one has no figure. Every job is traced in a process of its own; one that has
    not changed since costs nothing.
    """
    from memplan.project.overrides import Overrides
    from memplan.project.read import load_project

    problems = check.Problems()
    wanted: Sequence[outputs.Output] = problems.of(outputs.parse_outputs, formats or [], as_json, FORMATS) or ()
    overrides = Overrides(
        gpus=tuple(gpu or ()),
        profile_dirs=tuple(profile_dir or ()),
        baseline=baseline,
        fail_on=fail_on,
        jobs=tuple(wanted_jobs or ()),
    )
    if jobs is not None and jobs < 1:
        problems.add(f"--jobs must be at least 1, not {jobs}")
    if baseline is not None and not update_baseline and not is_file(baseline):
        # The project's own need not exist yet; what was typed was meant to.
        problems.add(
            f"there is no baseline '{baseline}': memplan gate --update-baseline --baseline {baseline} makes it"
        )
    loaded: Project | None = problems.of(load_project, project, overrides)
    problems.of(check_files, loaded, wanted)
    problems.raise_if_any()
    assert loaded is not None  # noqa: S101 - else there are problems.
    from memplan.gate.flow import GateOptions
    from memplan.gate.flow import gate as judge_project
    from memplan.job.side_by_side import processors

    asked = GateOptions(
        at_once=jobs or processors(),
        cache=cache.opened(),
        update_baseline=update_baseline,
        whole=not wanted_jobs,
        timelines=timeline or any(output.format == "html" for output in wanted),
    )
    with console.progress() as tell:
        result = judge_project(loaded, asked, tell)
    for output in wanted:
        write(output, result, quiet=quiet, timeline=timeline)
    raise typer.Exit(ExitCode.DONE if exit_zero else result.exit_code)


def write(output: outputs.Output, result: "GateResult", *, quiet: bool = False, timeline: bool = True) -> None:
    """Render one report of the gate and put it where it belongs."""

    def rendered() -> str:
        from memplan.gate.place import in_repository
        from memplan.report.gate.findings import findings_of

        # What is read beside the repository names files from its root.
        shown = result if output.format in ("json", "html") else in_repository(result)
        if output.format == "json" and not timeline:
            shown = replace(shown, digests={})
        content = findings_of(shown) if output.format in FINDING_FORMATS else shown
        text: str = importlib.import_module(RENDERERS[output.format]).render(content)
        return text

    def lines(width: int) -> "list[Text]":
        from memplan.report.gate.text import render

        return render(result, width=width, quiet=quiet)

    outputs.write_rendered(output, text=lines, **dict.fromkeys(RENDERERS, rendered))


def check_files(project: "Project | None", wanted: Sequence[outputs.Output]) -> None:
    """No report may be written over what it is made of, or over another one.

    Raises:
        UsageError: One would be.
    """
    files = [real(output.file) for output in wanted if output.file]
    if len(set(files)) < len(files):
        raise UsageError("two reports would be written to one file", hint="give each --format a file of its own")
    taken = {"project file": project.file, "baseline": project.baseline} if project else {}
    for what, path in taken.items():
        if path is not None and real(path) in files:
            raise UsageError(f"a report would be written over the {what} '{path}'", hint="name another file")
