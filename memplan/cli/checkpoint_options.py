"""The options of ``memplan checkpoint-plan``."""

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, get_args

import typer

from memplan.cli import check, groups, options, outputs
from memplan.cli.options import option
from memplan.plan.checkpoint.blocks.request import Method as MethodName

PLAN = "Plan"
METHODS = get_args(MethodName)
FORMATS = ("text", "json", "svg", "html", "code")
LEVELS = ("auto", "block", "op")
DEFAULT_METHOD = "ilp"
DEFAULT_SECONDS = 30.0
DEFAULT_SLOWDOWN = 0.33
"""A forward is about a third of a step: what running all of it again costs."""

TargetWords = Annotated[
    list[str], typer.Argument(metavar="TARGET", help="As for estimate; or GRAPH.json, an instance.", show_default=False)
]
Budget = Annotated[
    str | None,
    option("budget", PLAN, "Device peak at most, as estimate reports it: 40GiB.", metavar="BYTES",
           default="what the GPU has"),
]  # fmt: skip
Slowdown = Annotated[
    float | None,
    option("slowdown", PLAN, "The least memory whose extra time is at most this share of the step.", metavar="SHARE",
           default=f"{DEFAULT_SLOWDOWN}, without --gpu and --budget"),
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
    float,
    option("time_limit", PLAN, "For each call of the solver.", metavar="TIME", default="30s", parser=options.seconds),
]
Offload = Annotated[bool, option("offload", PLAN, "Activations may also wait in pinned host memory.")]
Blocks = Annotated[
    list[str] | None,
    option("blocks", PLAN, "Module, or pattern of modules, to plan. Repeatable.", metavar="NAME",
           default="repeated blocks, and what stands alone"),
]  # fmt: skip
PlanOut = Annotated[Path | None, option("out", PLAN, "Write the plan for memplan.apply.", metavar="FILE", short="-o")]
_WORDS = "text, json, svg (the memory-time curve), html (curve and blocks) or code (the plan as plain torch);"
Formats = Annotated[list[str] | None, options.formats(_WORDS)]
Code = Annotated[bool, option("code", options.REPORT, "Same as --format code.")]


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanOptions:
    """What is asked of the planner."""

    budget: Budget = None
    budget_ratio: BudgetRatio = None
    slowdown: Slowdown = None
    level: Level = "auto"
    method: Method = None
    time_limit: TimeLimit = DEFAULT_SECONDS
    offload: Offload = False
    blocks: Blocks = None
    out: PlanOut = None


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanReportOptions(groups.SearchReportOptions):
    """Reports, with the formats of this command."""

    formats: Formats = None
    code: Code = False


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanCommand:
    """One call of ``memplan checkpoint-plan``: what was typed, as far as all of its levels share it."""

    target: tuple[str, ...]
    gpu: list[str] | None
    plan: PlanOptions
    job: groups.JobOptions
    profile_dir: list[Path] | None
    report: PlanReportOptions
    budget: int | None
    """Of ``--budget``, in bytes."""
    outputs: tuple[outputs.Output, ...]
    """Reports to write."""
    problems: check.Problems
    """Takes what else is wrong."""
