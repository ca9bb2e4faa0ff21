"""``memplan checkpoint-plan``: where to checkpoint so that the step stays under a budget, and what that costs."""

import math
from collections.abc import Iterator
from pathlib import Path
from typing import cast

import typer

from memplan.cli import check, checkpoint_ops, console, groups, options, outputs
from memplan.cli.checkpoint_options import (
    DEFAULT_GPU,
    DEFAULT_METHOD,
    FORMATS,
    LEVELS,
    METHODS,
    Gpu,
    PlanOptions,
    PlanReportOptions,
    Target,
)
from memplan.cli.estimate import load_profiles
from memplan.errors import ExitCode, UsageError
from memplan.plan.checkpoint.blocks.answer.records import CheckpointAnswer, Method
from memplan.units import parse_size


@groups.spread
def checkpoint_plan(
    target: Target,
    *,
    gpu: Gpu = None,
    asked: PlanOptions,
    job: groups.JobOptions,
    profile_dir: options.ProfileDirs = None,
    report: PlanReportOptions,
) -> None:
    """Find where to checkpoint to meet a budget, at least cost.

    The plan is proved: it is applied to the model and the step is traced again. Exit 3 where no plan fits.
    """
    problems = check.Problems()
    formats = [*(report.formats or []), *(["code"] if report.code else [])]
    wanted = problems.of(outputs.parse_outputs, formats, report.as_json, FORMATS) or ()
    budget = problems.of(_budget, asked.budget)
    problems.add(*_wrong_plan(asked))
    if is_graph(target):
        problems.add(*checkpoint_ops.wrong_for_graph(gpu, asked, job, wanted))
        problems.raise_if_any()
        raise typer.Exit(checkpoint_ops.solve_graph(Path(target), budget, asked, wanted))
    if asked.level == "op":
        problems.add(*checkpoint_ops.wrong_for_step(asked, job, wanted))
        spec = check.job_spec(target, job, problems)
        profiles = problems.of(load_profiles, [gpu] if gpu else [], profile_dir or [])
        problems.raise_if_any()
        raise typer.Exit(
            checkpoint_ops.solve_step(
                spec,
                profile=next(iter(profiles), None),
                budget=budget,
                asked=asked,
                timeout=job.timeout,
                report=report,
                wanted=wanted,
            )
        )
    if asked.budget_ratio is not None:
        problems.add("--budget-ratio is for graph files and --level op; give --budget")
    if gpu is None and asked.budget is None:
        problems.add("a budget is missing: give --gpu, --budget or both")
    spec = check.job_spec(target, job, problems)
    profiles = problems.of(load_profiles, [gpu or DEFAULT_GPU], profile_dir or [])
    problems.raise_if_any()
    from memplan.plan.checkpoint.blocks.call import plan_checkpoints

    with console.progress(enabled=not report.quiet) as tell:
        answer = plan_checkpoints(
            spec,
            profiles[0],
            budget,
            method=cast("Method", asked.method or DEFAULT_METHOD),
            time_limit=asked.time_limit,
            offload=asked.offload,
            blocks=tuple(asked.blocks or ()),
            timeout=job.timeout,
            progress=tell,
        )
    if asked.out is not None:
        from memplan.runtime.checkpoint.plan_file import write_plan

        write_plan(answer.plan, asked.out)
    for output in wanted:
        _write(output, answer, report, asked.out)
    raise typer.Exit(ExitCode.DONE if answer.fits else ExitCode.UNKNOWN)


def is_graph(target: str) -> bool:
    """Is it an instance file rather than a model?"""
    return target.endswith(".json") and not target.startswith("hf:")


def _write(output: outputs.Output, answer: CheckpointAnswer, report: PlanReportOptions, plan: Path | None) -> None:
    from memplan.report.checkpoint import html as checkpoint_html
    from memplan.report.checkpoint import json as checkpoint_json
    from memplan.report.checkpoint import svg as checkpoint_svg
    from memplan.report.checkpoint import text as checkpoint
    from memplan.runtime.checkpoint.snippet import stand_alone_code

    outputs.write_rendered(
        output,
        text=lambda width: checkpoint.render(
            answer, width=width, explain=report.explain, quiet=report.quiet, plan_file=str(plan or "")
        ),
        json=lambda: checkpoint_json.render(answer),
        svg=lambda: checkpoint_svg.render(answer),
        html=lambda: checkpoint_html.render(answer),
        code=lambda: stand_alone_code(answer.plan),
    )


def _budget(text: str | None) -> int | None:
    try:
        return None if text is None else parse_size(text)
    except ValueError as error:
        raise UsageError(str(error), where="--budget") from error


def _wrong_plan(asked: PlanOptions) -> Iterator[str]:
    if asked.level not in LEVELS:
        yield f"--level must be one of {', '.join(LEVELS)}, not '{asked.level}'"
    if asked.method is not None and asked.method not in METHODS:
        yield f"--method must be one of {', '.join(METHODS)}, not '{asked.method}'"
    if not 0 < asked.time_limit < math.inf:
        yield f"--time-limit must be a number of seconds above 0, not {asked.time_limit}"
    if asked.budget_ratio is not None and not 0 < asked.budget_ratio < math.inf:
        yield f"--budget-ratio must be a number above 0, such as 0.7, not {asked.budget_ratio}"
    if asked.out is not None and (asked.out.is_dir() or not asked.out.parent.is_dir()):
        yield f"--out: cannot write a file '{asked.out}'"
