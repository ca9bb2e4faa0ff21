"""``memplan checkpoint-plan``: the door to plans of blocks, of a compiled step's ops, and of graphs from files."""

import math
from collections.abc import Iterator

import typer

from memplan.cli import check, checkpoint_blocks, checkpoint_graph, checkpoint_ops, groups, options, outputs
from memplan.cli.checkpoint_options import (
    FORMATS,
    LEVELS,
    METHODS,
    PlanCommand,
    PlanOptions,
    PlanReportOptions,
    TargetWords,
)


@groups.spread
def checkpoint_plan(
    target: TargetWords,
    *,
    gpu: options.Gpu = None,
    asked: PlanOptions,
    job: groups.JobOptions,
    profile_dir: options.ProfileDirs = None,
    report: PlanReportOptions,
) -> None:
    """Find where to checkpoint to meet a budget, at least cost.

    The plan is proved: it is applied to the model and the step is traced again. Exit 3 where no plan fits, 4
    where none was found in time.
    """
    problems = check.Problems()
    formats = [*(report.formats or []), *(["code"] if report.code else [])]
    wanted = problems.of(outputs.parse_outputs, formats, report.as_json, FORMATS) or ()
    budget = problems.of(check.size, "--budget", asked.budget)
    problems.add(*_wrong_plan(asked))
    command = PlanCommand(
        target=tuple(target),
        gpu=gpu,
        plan=asked,
        job=job,
        profile_dir=profile_dir,
        report=report,
        budget=budget,
        outputs=wanted,
        problems=problems,
    )
    if len(target) == 1 and is_graph(target[0]):
        raise typer.Exit(checkpoint_graph.run(command))
    if asked.level == "op":
        raise typer.Exit(checkpoint_ops.run(command))
    raise typer.Exit(checkpoint_blocks.run(command))


def is_graph(target: str) -> bool:
    """Is it an instance file rather than a model?"""
    return target.endswith(".json") and not target.startswith("hf:")


def _wrong_plan(asked: PlanOptions) -> Iterator[str]:
    yield from check.wrong_word("--level", asked.level, LEVELS)
    yield from check.wrong_word("--method", asked.method, METHODS)
    yield from check.wrong_seconds("--time-limit", asked.time_limit)
    if asked.budget_ratio is not None and not 0 < asked.budget_ratio < math.inf:
        yield f"--budget-ratio must be a number above 0, such as 0.7, not {asked.budget_ratio}"
    if asked.slowdown is not None and not 0 <= asked.slowdown < math.inf:
        yield f"--slowdown must be a share of the step's time, such as 0.33, not {asked.slowdown}"
    yield from check.wrong_file("--out", asked.out)
