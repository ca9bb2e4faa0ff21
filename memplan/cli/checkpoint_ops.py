"""``memplan checkpoint-plan`` op by op: for a target's compiled step, and for graphs from files."""

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from memplan.cli import console, groups, options, outputs
from memplan.cli.checkpoint_options import PlanOptions, PlanReportOptions
from memplan.errors import ExitCode

if TYPE_CHECKING:
    from memplan.hardware.profile import GpuProfile
    from memplan.job.spec import JobSpec
    from memplan.plan.checkpoint.schedule.answer import GraphAnswer

OF_OP_LEVEL = ("allow_network", "trust_remote_code", "batch_size", "seq_len", "inputs", "precision", "mode")
"""What of a job shapes the graph of its forward and backward."""


def solve_graph(path: Path, budget: int | None, asked: PlanOptions, wanted: tuple[outputs.Output, ...]) -> ExitCode:
    """Find a schedule for a graph from a file, and report it."""
    from memplan.plan.checkpoint.graph.call import plan_graph
    from memplan.report.checkpoint import graph as checkpoint_graph
    from memplan.report.checkpoint import json as checkpoint_json

    answer: GraphAnswer = plan_graph(path, budget=budget, ratio=asked.budget_ratio, time_limit=asked.time_limit)
    for output in wanted:
        outputs.write_rendered(
            output,
            text=lambda width: checkpoint_graph.render(answer, width=width),
            json=lambda: checkpoint_json.render(answer),
        )
    return ExitCode.DONE if answer.outcome in ("optimal", "feasible") else ExitCode.UNKNOWN


def solve_step(
    spec: "JobSpec",
    *,
    profile: "GpuProfile | None",
    budget: int | None,
    asked: PlanOptions,
    timeout: float,
    report: PlanReportOptions,
    wanted: tuple[outputs.Output, ...],
) -> ExitCode:
    """Find an order of a target's compiled step, write it down and report it."""
    from memplan.plan.checkpoint.ops.call import plan_step
    from memplan.report.checkpoint import graph as checkpoint_graph
    from memplan.report.checkpoint import json as checkpoint_json
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
            json=lambda: checkpoint_json.render(found.answer),
        )
    return ExitCode.DONE if found.order is not None else ExitCode.UNKNOWN


def wrong_for_step(asked: PlanOptions, job: groups.JobOptions, wanted: tuple[outputs.Output, ...]) -> Iterator[str]:
    """A sentence for each option that an op-level plan cannot have."""
    given = {"method": asked.method, "offload": asked.offload, "blocks": asked.blocks}
    idle = [name for name, value in given.items() if value] + [name for name in job.typed() if name not in OF_OP_LEVEL]
    if idle:
        yield f"--level op has no use for {', '.join(map(options.flag, idle))}"
    if any(output.format not in outputs.REPORTS for output in wanted):
        yield f"--format must be one of {', '.join(outputs.REPORTS)} for --level op"
    if (asked.budget is None) == (asked.budget_ratio is None):
        yield "--level op needs either --budget or --budget-ratio"
    if job.given.get("mode") not in (None, "train"):
        yield "only training keeps activations for a backward: --mode train"


def wrong_for_graph(
    gpu: str | None, asked: PlanOptions, job: groups.JobOptions, wanted: tuple[outputs.Output, ...]
) -> Iterator[str]:
    """A sentence for each option that a graph from a file cannot have."""
    if asked.level == "block":
        yield "a graph file has ops, no blocks: leave --level away"
    given = {"gpu": gpu, "method": asked.method, "offload": asked.offload, "blocks": asked.blocks, "out": asked.out}
    idle = [*(name for name, value in given.items() if value), *job.typed()]
    if idle:
        yield f"a graph file has no use for {', '.join(map(options.flag, idle))}"
    if any(output.format not in outputs.REPORTS for output in wanted):
        yield f"--format must be one of {', '.join(outputs.REPORTS)} for a graph file"
