"""``memplan graph``: a step as an fx graph, and the lifetimes of its tensors as a graph of their own."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated

import typer

from memplan.cli import check, console, groups, options, outputs
from memplan.cli.device import profile_for
from memplan.cli.job import as_most_run_it, job_spec
from memplan.cli.options import option
from memplan.errors import ExitCode

if TYPE_CHECKING:
    from memplan.measure.graphs import JobGraphs

FORMATS = ("text", "code", "json", "dot", "graphml", "html", "fx")
Largest = Annotated[
    int | None,
    option("largest", options.REPORT, "Keep the N tensors with the most bytes.", metavar="N", default="all"),
]
_WORDS = (
    "text; code of the fx graph; json (node-link), dot, graphml or html of the lifetimes; "
    "fx=FILE.pt, which torch.load reads."
)
Formats = Annotated[list[str] | None, options.formats(_WORDS)]


@dataclass(frozen=True, slots=True, kw_only=True)
class GraphReportOptions(groups.ReportOptions):
    """Reports, with the formats of this command."""

    formats: Formats = None


@groups.spread
def graph(
    target: options.TargetWords,
    *,
    gpu: options.Gpu = None,
    job: groups.JobOptions,
    profile_dir: options.ProfileDirs = None,
    largest: Largest = None,
    report: GraphReportOptions,
) -> None:
    """Show a step as a torch.fx graph, and who is alive when.

    The step is always traced in full. Of several ranks it is the first.
    """
    problems = check.Problems()
    wanted = problems.of(outputs.parse_outputs, report.formats or [], report.as_json, FORMATS) or ()
    problems.add(*_wrong(wanted, largest))
    spec = job_spec(target, job, problems)
    profile = problems.of(profile_for, gpu, profile_dir)
    problems.raise_if_any()
    spec = as_most_run_it(spec, job, [profile])
    from memplan.measure.graphs import job_graphs

    with console.progress() as tell:
        found = job_graphs(
            spec,
            profile,
            code=any(output.format == "code" for output in wanted),
            module=any(output.format == "fx" for output in wanted),
            largest=largest,
            timeout=job.timeout,
            progress=tell,
        )
    for output in wanted:
        _write(output, found, report)
    raise typer.Exit(ExitCode.DONE)


def _wrong(wanted: "tuple[outputs.Output, ...]", largest: int | None) -> Iterator[str]:
    if largest is not None and largest < 1:
        yield f"--largest must be at least 1, not {largest}"
    if any(output.format == "fx" and output.file is None for output in wanted):
        yield "--format fx is no text: name a file, -f fx=step.pt"


def _write(output: outputs.Output, found: "JobGraphs", report: GraphReportOptions) -> None:
    from memplan.report.graph import dot, html, text
    from memplan.report.graph import json as graph_json

    if output.format == "fx":
        outputs.write_file(output, found.module)
        return
    outputs.write_rendered(
        output,
        text=lambda width: text.render(found, width=width, explain=report.explain, quiet=report.quiet),
        code=lambda: found.code,
        json=lambda: graph_json.render(found),
        dot=lambda: dot.render(found),
        graphml=lambda: dot.graphml(found),
        html=lambda: html.render(found),
    )
