"""``memplan checkpoint-plan --level op``: an order of the ops of a target's compiled step."""

from collections.abc import Iterator

from memplan.cli import console, endings, options, outputs
from memplan.cli.checkpoint_options import PlanCommand
from memplan.cli.device import profile_for
from memplan.cli.job import as_most_run_it, job_spec, no_program
from memplan.errors import ExitCode

OF_OP_LEVEL = ("allow_network", "trust_remote_code", "batch_size", "seq_len", "inputs", "precision", "mode")
"""What of a job shapes the graph of its forward and backward."""


def run(command: PlanCommand) -> ExitCode:
    """Find an order of a target's compiled step, write it down and report it."""
    asked, problems = command.plan, command.problems
    problems.add(*_wrong(command))
    spec = job_spec(command.target, command.job, problems)
    problems.of(no_program, spec, "--level op captures a model's step alone; --level block plans programs")
    profile = problems.of(profile_for, command.gpu, command.profile_dir) if command.gpu else None
    problems.raise_if_any()
    spec = as_most_run_it(spec, command.job, [profile], by_trainer=False)
    from memplan.plan.checkpoint.ops.call import plan_step
    from memplan.report.checkpoint import graph as checkpoint_graph
    from memplan.report.checkpoint import json as checkpoint_json
    from memplan.runtime.partition.order_file import write_order

    with console.progress() as tell:
        plan = plan_step(
            spec,
            profile,
            command.budget,
            ratio=asked.budget_ratio,
            time_limit=asked.time_limit,
            timeout=command.job.timeout,
            progress=tell,
        )
    written = asked.out if plan.order is not None else None
    if written is not None and plan.order is not None:
        write_order(plan.order, written)
    for output in command.outputs:
        outputs.write_rendered(
            output,
            text=lambda width: checkpoint_graph.render(
                plan.answer, width=width, explain=command.report.explain, plan_file=str(written or "")
            ),
            json=lambda: checkpoint_json.render(plan.answer),
        )
    found, was_cut = plan.order is not None, plan.answer.outcome == "timed_out"
    return endings.exit_code(found=found, was_cut=was_cut, exit_zero=command.report.exit_zero)


def _wrong(command: PlanCommand) -> Iterator[str]:
    """A sentence for each option that an op-level plan cannot have."""
    asked, job = command.plan, command.job
    given = {"method": asked.method, "slowdown": asked.slowdown, "offload": asked.offload, "blocks": asked.blocks}
    idle = [name for name, value in given.items() if value] + [name for name in job.typed() if name not in OF_OP_LEVEL]
    if idle:
        yield f"--level op has no use for {', '.join(map(options.flag, idle))}"
    if any(output.format not in outputs.REPORTS for output in command.outputs):
        yield f"--format must be one of {', '.join(outputs.REPORTS)} for --level op"
    if (asked.budget is None) == (asked.budget_ratio is None):
        yield "--level op needs either --budget or --budget-ratio"
    if job.given.get("mode") not in (None, "train"):
        yield "only training keeps activations for a backward: --mode train"
