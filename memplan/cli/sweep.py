"""``memplan sweep``: the best way to run every job of a project on every GPU, searched here or on a cluster."""

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, cast, get_args

import typer

from memplan.cli import check, console, options, outputs
from memplan.cli.options import option
from memplan.cli.recommend_options import DEFAULT_BUDGET, SEARCH, Allow, TimeLimit
from memplan.errors import ExitCode
from memplan.job.limits import MAX_COUNT
from memplan.plan.recommend.records import ALLOWABLE, Group, Search
from memplan.plan.recommend.time_limit import read_time_limit
from memplan.plan.sweep.records import PROCESSES, Backend, SweepRequest

if TYPE_CHECKING:
    from memplan.plan.sweep.records import Sweep
    from memplan.project.records import Project

BACKENDS = get_args(Backend)

File = Annotated[
    Path | None,
    typer.Argument(metavar="[JOBS.toml]", show_default=False,
                   help="Project file; none: memplan.toml, or [tool.memplan] of pyproject.toml, here or above."),
]  # fmt: skip
JobNames = Annotated[
    list[str] | None, option("job", options.TARGET, "Only this job. Repeatable.", metavar="NAME", default="all")
]
Count = Annotated[
    int | None, option("gpus", options.DEVICE, "How many of each.", metavar="N", default="the job's own ranks")
]
BackendName = Annotated[
    str, option("backend", SEARCH, f"What carries the searches: {', '.join(BACKENDS)}.", metavar="NAME",
                default="loky, processes of this machine"),
]  # fmt: skip
Address = Annotated[
    str | None,
    option("address", SEARCH, "Of the Dask scheduler or the Ray cluster.", metavar="ADDRESS",
           default="one is started on this machine"),
]  # fmt: skip
Jobs = Annotated[
    int | None,
    option("jobs", SEARCH, "Traces at once in each search, at least 2.", metavar="N", default=str(PROCESSES)),
]


def sweep(
    jobs_file: File = None,
    *,
    job: JobNames = None,
    gpu: options.GpusInstead = None,
    gpus: Count = None,
    profile_dir: options.ProfileDirs = None,
    backend: BackendName = "loky",
    address: Address = None,
    time_limit: TimeLimit = DEFAULT_BUDGET,
    allow: Allow = None,
    jobs: Jobs = None,
    formats: options.Formats = None,
    as_json: options.AsJson = False,
    quiet: options.Quiet = False,
    exit_zero: options.ExitZero = False,
) -> None:
    """Find the best way to run every job of a project file.

    Every search, of one job on one GPU, is a 'memplan recommend'; a cluster carries as many at once as it has
    processors. Exit 3 where a job has no answer, 4 where none was found in the budget.
    """
    from memplan.project.overrides import Overrides
    from memplan.project.read import load_project

    problems = check.Problems()
    wanted = problems.of(outputs.parse_outputs, formats or [], as_json) or ()
    allowed = tuple(part.strip() for part in allow.split(",")) if allow else ()
    problems.add(*_wrong(backend, address, allowed), *_wrong_numbers(gpus, jobs))
    time_budget, budget_traces = problems.of(read_time_limit, time_limit) or (0.0, None)
    overrides = Overrides(gpus=gpu or (), profile_dirs=profile_dir or (), jobs=job or ())
    project: Project = problems.of(load_project, jobs_file, overrides)
    problems.raise_if_any()
    asked = SweepRequest(
        backend=cast("Backend", backend),
        address=address,
        gpus=gpus,
        search=Search(
            allow=cast("tuple[Group, ...]", allowed),
            budget_seconds=time_budget,
            budget_traces=budget_traces,
            processes=jobs,
        ),
    )
    from memplan.plan.sweep.flow import sweep as sweep_project

    with console.progress() as tell:
        answer = sweep_project(project, asked, tell)
    for output in wanted:
        _write(output, answer, quiet=quiet)
    raise typer.Exit(ExitCode.DONE if exit_zero else answer.exit_code)


def _wrong(backend: str, address: str | None, allowed: tuple[str, ...]) -> Iterator[str]:
    yield from check.wrong_word("--backend", backend, BACKENDS)
    if address is not None and backend == "loky":
        yield "--address is of a cluster: give --backend dask or ray too"
    for word in allowed:
        if word not in ALLOWABLE:
            yield f"--allow takes {', '.join(ALLOWABLE)}, not '{word}'"


def _wrong_numbers(gpus: int | None, jobs: int | None) -> Iterator[str]:
    for name, count in (("gpus", gpus), ("jobs", jobs)):
        if count is not None and not 1 <= count <= MAX_COUNT:
            yield f"--{name} must be between 1 and {MAX_COUNT}, not {count}"


def _write(output: outputs.Output, answer: "Sweep", *, quiet: bool) -> None:
    from memplan.report.sweep import json as sweep_json
    from memplan.report.sweep import text

    outputs.write_rendered(
        output,
        text=lambda width: text.render(answer, width=width, quiet=quiet),
        json=lambda: sweep_json.render(answer),
    )
