"""``memplan reuse-plan``: one arena for all buffers of a step, a snapshot or a file, and where each lies in it."""

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from memplan.cli import check, console, endings, groups, options, outputs
from memplan.cli.device import profile_for
from memplan.cli.job import as_most_run_it, job_spec
from memplan.cli.options import option
from memplan.errors import UsageError
from memplan.files.read import is_file as readable
from memplan.job.spec import JobSpec

if TYPE_CHECKING:
    from memplan.plan.reuse.answer_records import ReuseAnswer

PANEL = "Plan"
FORMATS = ("text", "json", "csv", "svg", "html")

TargetWords = Annotated[
    list[str],
    typer.Argument(
        metavar="TARGET",
        help="As for estimate; buffers as FILE.csv (id,lower,upper,size); or a CUDA memory snapshot (*.pickle).",
        show_default=False,
    ),
]
Capacity = Annotated[
    str | None,
    option("capacity", PANEL, "Bytes that the arena may have: 16MiB. Exit 3 where nothing fits.", metavar="BYTES",
           default="as few as possible"),
]  # fmt: skip
METHODS = ("auto", "search", "cp-sat", "ilp", "colour", "greedy", "improve", "all")
"""As in ``memplan.plan.reuse.methods``, which takes time to import; a test compares them."""
Method = Annotated[
    str,
    option("method", PANEL, f"Who places the buffers: {', '.join(METHODS)} (each, side by side).", metavar="NAME",
           default="auto"),
]  # fmt: skip
TimeLimit = Annotated[
    float, option("time_limit", PANEL, "For each method.", metavar="TIME", default="10s", parser=options.seconds)
]
_WORDS = "text, json, csv (with offsets), svg or html (offsets over time);"
Formats = Annotated[list[str] | None, options.formats(_WORDS)]


@dataclass(frozen=True, slots=True, kw_only=True)
class ArenaOptions:
    """What is asked of the solvers."""

    capacity: Capacity = None
    method: Method = "auto"
    time_limit: TimeLimit = 10.0


@dataclass(frozen=True, slots=True, kw_only=True)
class ReuseReportOptions(groups.SearchReportOptions):
    """Reports, with the formats of this command."""

    formats: Formats = None


@groups.spread
def reuse_plan(
    target: TargetWords,
    *,
    gpu: options.Gpu = None,
    asked: ArenaOptions,
    job: groups.JobOptions,
    profile_dir: options.ProfileDirs = None,
    cache: groups.CacheOptions,
    report: ReuseReportOptions,
) -> None:
    """Place all buffers of a step in one small arena.

    The placement is checked on its own. Exit 3 where nothing fits the capacity, 4 where none was found in
    time.
    """
    from memplan.plan.reuse.compose import is_file, plan_reuse

    problems = check.Problems()
    wanted = problems.of(outputs.parse_outputs, report.formats or [], report.as_json, FORMATS) or ()
    capacity = problems.of(check.size, "--capacity", asked.capacity)
    problems.add(
        *check.wrong_seconds("--time-limit", asked.time_limit), *check.wrong_word("--method", asked.method, METHODS)
    )
    profile = None
    if is_file(target[0]):
        source: JobSpec | Path = problems.of(_file, options.alone(target), gpu, job)
        problems.add(*check.wrong_values({"timeout": job.timeout}))
    else:
        source = job_spec(target, job, problems)
        profile = problems.of(profile_for, gpu, profile_dir)
    problems.raise_if_any()
    if isinstance(source, JobSpec):
        source = as_most_run_it(source, job, [profile])
    with console.progress() as tell:
        answer = plan_reuse(
            source,
            profile,
            capacity=capacity,
            method=asked.method,
            time_limit=asked.time_limit,
            timeout=job.timeout,
            cache=cache.opened(),
            progress=tell,
        )
    for output in wanted:
        _write(output, answer, report)
    was_cut = answer.outcome == "timed_out"
    raise typer.Exit(endings.exit_code(found=answer.fits, was_cut=was_cut, exit_zero=report.exit_zero))


def _write(output: outputs.Output, answer: "ReuseAnswer", report: ReuseReportOptions) -> None:
    from memplan.plan.reuse.csv_file import write_problem
    from memplan.report.reuse import html as reuse_html
    from memplan.report.reuse import json as reuse_json
    from memplan.report.reuse import svg as reuse_svg
    from memplan.report.reuse import text as reuse

    outputs.write_rendered(
        output,
        text=lambda width: reuse.render(answer, width=width, explain=report.explain, quiet=report.quiet),
        json=lambda: reuse_json.render(answer),
        svg=lambda: reuse_svg.render(answer),
        html=lambda: reuse_html.render(answer),
        csv=lambda: write_problem(answer.problem, answer.placement),
    )


def _file(target: str, gpu: list[str] | None, job: groups.JobOptions) -> Path:
    given = [*(["--gpu"] if gpu else []), *(options.flag(name) for name in job.typed())]
    if given:
        raise UsageError(f"{', '.join(given)} would change nothing: the buffers of a file are what they are")
    path = Path(target)
    if not readable(path):
        raise UsageError(f"there is no file '{target}'")
    return path
