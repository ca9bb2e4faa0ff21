"""``memplan checkpoint-plan``: where to checkpoint so that the step stays under a budget, and what that costs."""

import math
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, cast, get_args

import typer

from memplan.cli import check, console, groups, options, outputs
from memplan.cli.estimate import load_profiles
from memplan.cli.options import option
from memplan.errors import ExitCode, UsageError
from memplan.plan.checkpoint.answer_records import CheckpointAnswer
from memplan.plan.checkpoint.answer_records import Method as MethodName
from memplan.units import parse_size

if TYPE_CHECKING:
    from memplan.hardware.profile import GpuProfile
    from memplan.job.spec import JobSpec
    from memplan.plan.checkpoint.graph.answer import GraphAnswer

PLAN = "Plan"
METHODS = get_args(MethodName)
FORMATS = ("text", "json", "svg", "code")
LEVELS = ("auto", "block", "op")
OF_OP_LEVEL = ("allow_network", "trust_remote_code", "batch_size", "seq_len", "inputs", "precision", "mode")
"""What of a job shapes the graph of its forward and backward."""
DEFAULT_METHOD = "ilp"
DEFAULT_GPU = "a100-80g"
"""What the step is traced for where only a budget is given."""
DEFAULT_SECONDS = 30.0

Target = Annotated[
    str, typer.Argument(metavar="TARGET", help="As for estimate; or GRAPH.json, an instance.", show_default=False)
]
Gpu = Annotated[
    str | None,
    option("gpu", options.DEVICE, "GPU profile, as 'memplan gpus' lists them.", metavar="NAME",
           default=f"{DEFAULT_GPU}, with --budget"),
]  # fmt: skip
Budget = Annotated[
    str | None,
    option("budget", PLAN, "Device peak at most, as estimate reports it: 40GiB.", metavar="BYTES",
           default="what the GPU has"),
]  # fmt: skip
BudgetRatio = Annotated[
    float | None, option("budget_ratio", PLAN, "The same as a share of the unplanned peak.", metavar="SHARE")
]
Level = Annotated[
    str,
    option("level", PLAN, "block: of the eager model; op: of its compiled step, for torch.compile.", metavar="NAME",
           default="auto: op for graph files, else block"),
]  # fmt: skip
Method = Annotated[
    str | None, option("method", PLAN, f"Solver: {', '.join(METHODS)}.", metavar="NAME", default="ilp, proved best")
]
TimeLimit = Annotated[
    float, option("time_limit", PLAN, "For each call of the solver.", metavar="SECONDS", default="30")
]
Offload = Annotated[bool, option("offload", PLAN, "Activations may also wait in pinned host memory.")]
Blocks = Annotated[
    list[str] | None,
    option("blocks", PLAN, "Module, or pattern of modules, to plan. Repeatable.", metavar="NAME",
           default="every repeated block"),
]  # fmt: skip
PlanOut = Annotated[Path | None, option("out", PLAN, "Write the plan for memplan.apply.", metavar="FILE", short="-o")]
Formats = Annotated[
    list[str] | None,
    option("formats", options.REPORT, "text, json, svg (the memory-time curve) or code (the plan as plain torch); with "
           "=FILE not to standard output. Repeatable.", metavar="FORMAT[=FILE]", default="text", short="-f"),
]  # fmt: skip
Code = Annotated[bool, option("code", options.REPORT, "Same as --format code.")]


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanOptions:
    """What is asked of the planner."""

    budget: Budget = None
    budget_ratio: BudgetRatio = None
    level: Level = "auto"
    method: Method = None
    time_limit: TimeLimit = DEFAULT_SECONDS
    offload: Offload = False
    blocks: Blocks = None
    out: PlanOut = None


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanReportOptions(groups.ReportOptions):
    """Reports, with the formats of this command."""

    formats: Formats = None
    code: Code = False


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
        problems.add(*_wrong_for_graph(gpu, asked, job, wanted))
        problems.raise_if_any()
        raise typer.Exit(_solve_graph(Path(target), budget, asked, wanted))
    if asked.level == "op":
        problems.add(*_wrong_for_step(asked, job, wanted))
        spec = check.job_spec(target, job, problems)
        profiles = problems.of(load_profiles, [gpu] if gpu else [], profile_dir or [])
        problems.raise_if_any()
        raise typer.Exit(
            _solve_step(
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
    from memplan.plan.checkpoint.compose import plan_checkpoints

    with console.progress(enabled=not report.quiet) as tell:
        answer = plan_checkpoints(
            spec,
            profiles[0],
            budget,
            method=cast("MethodName", asked.method or DEFAULT_METHOD),
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
    from memplan.report import checkpoint, checkpoint_json, checkpoint_svg
    from memplan.runtime.checkpoint.snippet import stand_alone_code

    outputs.write_rendered(
        output,
        text=lambda width: checkpoint.render(
            answer, width=width, explain=report.explain, quiet=report.quiet, plan_file=str(plan or "")
        ),
        json=lambda: checkpoint_json.render(answer),
        svg=lambda: checkpoint_svg.render(answer),
        code=lambda: stand_alone_code(answer.plan),
    )


def _solve_graph(path: Path, budget: int | None, asked: PlanOptions, wanted: tuple[outputs.Output, ...]) -> ExitCode:
    from memplan.plan.checkpoint.graph.answer import plan_graph
    from memplan.report import checkpoint_graph

    answer: GraphAnswer = plan_graph(path, budget=budget, ratio=asked.budget_ratio, time_limit=asked.time_limit)
    for output in wanted:
        outputs.write_rendered(
            output,
            text=lambda width: checkpoint_graph.render(answer, width=width),
            json=lambda: checkpoint_graph.render_json(answer),
        )
    return ExitCode.DONE if answer.outcome in ("optimal", "feasible") else ExitCode.UNKNOWN


def _solve_step(
    spec: "JobSpec",
    *,
    profile: "GpuProfile | None",
    budget: int | None,
    asked: PlanOptions,
    timeout: float,
    report: PlanReportOptions,
    wanted: tuple[outputs.Output, ...],
) -> ExitCode:
    from memplan.plan.checkpoint.joint.step import plan_step
    from memplan.report import checkpoint_graph
    from memplan.runtime.partition.order_file import write_order

    with console.progress(enabled=not report.quiet) as tell:
        found = plan_step(
            spec,
            profile,
            budget,
            ratio=asked.budget_ratio,
            time_limit=asked.time_limit,
            timeout=timeout,
            progress=tell,
        )
    written = asked.out if found.order is not None else None
    if written is not None and found.order is not None:
        write_order(found.order, written)
    for output in wanted:
        outputs.write_rendered(
            output,
            text=lambda width: checkpoint_graph.render(
                found.answer, width=width, explain=report.explain, plan_file=str(written or "")
            ),
            json=lambda: checkpoint_graph.render_json(found.answer),
        )
    return ExitCode.DONE if found.order is not None else ExitCode.UNKNOWN


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


def _wrong_for_step(asked: PlanOptions, job: groups.JobOptions, wanted: tuple[outputs.Output, ...]) -> Iterator[str]:
    given = {"method": asked.method, "offload": asked.offload, "blocks": asked.blocks}
    idle = [name for name, value in given.items() if value] + [name for name in job.given() if name not in OF_OP_LEVEL]
    if idle:
        yield f"--level op has no use for {', '.join(map(options.flag, idle))}"
    if any(output.format not in outputs.REPORTS for output in wanted):
        yield f"--format must be one of {', '.join(outputs.REPORTS)} for --level op"
    if (asked.budget is None) == (asked.budget_ratio is None):
        yield "--level op needs either --budget or --budget-ratio"
    if job.mode not in (None, "train"):
        yield "only training keeps activations for a backward: --mode train"


def _wrong_for_graph(
    gpu: str | None, asked: PlanOptions, job: groups.JobOptions, wanted: tuple[outputs.Output, ...]
) -> Iterator[str]:
    if asked.level == "block":
        yield "a graph file has ops, no blocks: leave --level away"
    idle = [*(["gpu"] if gpu else []), *job.given()]
    if idle:
        yield f"a graph file has no use for {', '.join(map(options.flag, idle))}"
    if any(output.format not in outputs.REPORTS for output in wanted):
        yield f"--format must be one of {', '.join(outputs.REPORTS)} for a graph file"
