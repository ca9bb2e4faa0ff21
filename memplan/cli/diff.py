"""``memplan diff``: what grew between two saved results or two revisions."""

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from memplan.cli import check, console, options, outputs
from memplan.cli.gate import AtOnce, ProjectFile
from memplan.files.read import is_file

if TYPE_CHECKING:
    from memplan.gate.revision import Run
    from memplan.measure.records import Estimate

FORMATS = ("text", "json", "markdown", "html")

Formats = Annotated[list[str] | None, options.formats(f"{', '.join(FORMATS)};")]


def diff(
    base: Annotated[str, typer.Argument(metavar="BASE", help="A saved result, or a git revision.")],
    head: Annotated[
        str | None,
        typer.Argument(metavar="[HEAD]", help="Another; none: the working tree.", show_default=False),
    ] = None,
    *,
    project: ProjectFile = None,
    gpu: options.GpusInstead = None,
    profile_dir: options.ProfileDirs = None,
    jobs: AtOnce = None,
    formats: Formats = None,
    as_json: options.AsJson = False,
    quiet: options.Quiet = False,
) -> None:
    """Show what grew, by module and category.

    Saved results are those of estimate -f json, gate -f json and baselines. Of a revision, the jobs of its project file
    are run in a temporary worktree; the checkout is not touched.
    """
    problems = check.Problems()
    wanted = problems.of(outputs.parse_outputs, formats or [], as_json, FORMATS) or ()
    if jobs is not None and jobs < 1:
        problems.add(f"--jobs must be at least 1, not {jobs}")
    problems.raise_if_any()
    from memplan.gate.compare import difference
    from memplan.gate.revision import Run
    from memplan.job.side_by_side import processors
    from memplan.measure.cache import default_folder
    from memplan.project.overrides import Overrides
    from memplan.report.gate.diff import render, render_markdown
    from memplan.report.gate.diff_json import render as render_json
    from memplan.report.html.diff import render as render_page

    how = Run(
        project=project,
        overrides=Overrides(gpus=tuple(gpu or ()), profile_dirs=tuple(profile_dir or ())),
        at_once=jobs or processors(),
        cache_folder=default_folder(),
    )
    with console.progress() as tell:
        before, after = _entries(base, how, tell), _entries(head, how, tell)
    found = difference(before, after, names=(base, head or "the working tree"))
    for output in wanted:
        outputs.write_rendered(
            output,
            text=lambda width: render(found, width=width, quiet=quiet),
            json=lambda: render_json(found),
            markdown=lambda: render_markdown(found),
            html=lambda: render_page(found),
        )


def _entries(name: str | None, how: "Run", tell: Callable[[str], None] | None) -> "dict[tuple[str, str], Estimate]":
    from memplan.gate.revision import estimates_at, estimates_here
    from memplan.gate.saved import load_entries

    if name is None:
        return estimates_here(how, tell)
    # A revision may be called like a folder, never like a file that somebody would want to compare.
    return load_entries(Path(name)) if is_file(name) else estimates_at(name, how, tell)
