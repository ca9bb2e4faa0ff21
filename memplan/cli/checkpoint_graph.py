"""``memplan checkpoint-plan`` of a graph from a file."""

from collections.abc import Iterator
from pathlib import Path

from memplan.cli import endings, options, outputs
from memplan.cli.checkpoint_options import PlanCommand
from memplan.errors import ExitCode


def run(command: PlanCommand) -> ExitCode:
    """Find a schedule for a graph from a file, and report it."""
    command.problems.add(*_wrong(command))
    command.problems.raise_if_any()
    from memplan.plan.checkpoint.graph_file import plan_graph
    from memplan.report.checkpoint import graph as checkpoint_graph
    from memplan.report.checkpoint import json as checkpoint_json

    asked = command.plan
    answer = plan_graph(
        Path(command.target[0]), budget=command.budget, ratio=asked.budget_ratio, time_limit=asked.time_limit
    )
    for output in command.outputs:
        outputs.write_rendered(
            output,
            text=lambda width: checkpoint_graph.render(answer, width=width),
            json=lambda: checkpoint_json.render(answer),
        )
    found, was_cut = answer.outcome in ("optimal", "feasible"), answer.outcome == "timed_out"
    return endings.exit_code(found=found, was_cut=was_cut, exit_zero=command.report.exit_zero)


def _wrong(command: PlanCommand) -> Iterator[str]:
    """A sentence for each option that a graph from a file cannot have."""
    asked = command.plan
    if asked.level == "block":
        yield "a graph file has ops, no blocks: leave --level away"
    given = {
        "gpu": command.gpu,
        "method": asked.method,
        "slowdown": asked.slowdown,
        "offload": asked.offload,
        "blocks": asked.blocks,
    }
    idle = [*(name for name, value in (given | {"out": asked.out}).items() if value), *command.job.typed()]
    if idle:
        yield f"a graph file has no use for {', '.join(map(options.flag, idle))}"
    if any(output.format not in outputs.REPORTS for output in command.outputs):
        yield f"--format must be one of {', '.join(outputs.REPORTS)} for a graph file"
