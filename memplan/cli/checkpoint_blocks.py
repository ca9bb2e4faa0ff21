"""``memplan checkpoint-plan`` of an eager model's blocks."""

from typing import TYPE_CHECKING, cast

from memplan.cli import console, endings, outputs
from memplan.cli.checkpoint_options import DEFAULT_METHOD, DEFAULT_SLOWDOWN, PlanCommand
from memplan.cli.device import profile_for
from memplan.cli.job import as_most_run_it, job_spec
from memplan.errors import ExitCode

if TYPE_CHECKING:
    from collections.abc import Callable

    from memplan.hardware.profile import GpuProfile
    from memplan.job.spec import JobSpec
    from memplan.plan.checkpoint.blocks.answer.records import CheckpointAnswer
    from memplan.plan.checkpoint.blocks.request import Method


NO_LIMIT = 1 << 50
"""Budget of a curve on a device that has no fixed memory."""


def run(command: PlanCommand) -> ExitCode:
    """Find a plan of a target's blocks, write it down and report it."""
    asked, problems = command.plan, command.problems
    if asked.budget_ratio is not None:
        problems.add("--budget-ratio is for graph files and --level op; give --budget")
    if asked.slowdown is not None and asked.budget is not None:
        problems.add("--slowdown asks for the least memory: --budget would change nothing")
    spec = job_spec(command.target, command.job, problems)
    profile = problems.of(profile_for, command.gpu, command.profile_dir)
    problems.raise_if_any()
    spec = as_most_run_it(spec, command.job, [profile], by_trainer=False)
    from memplan.runtime.checkpoint.plan_file import write_plan

    slowdown = asked.slowdown
    if slowdown is None and not command.gpu and asked.budget is None:
        slowdown = DEFAULT_SLOWDOWN
        console.tell(f"note: no budget: this is the least memory at {slowdown:.0%} more time at most\n")
    with console.progress() as tell:
        if slowdown is None:
            answer = _planned(spec, profile, command.budget, command, tell)
        else:
            answer = _least(spec, profile, slowdown, command, tell)
    if asked.out is not None:
        write_plan(answer.plan, asked.out)
    for output in command.outputs:
        _write(output, answer, command)
    was_cut = answer.outcome == "timed_out"
    return endings.exit_code(found=answer.fits, was_cut=was_cut, exit_zero=command.report.exit_zero)


def _planned(
    spec: "JobSpec",
    profile: "GpuProfile",
    budget: int | None,
    command: PlanCommand,
    tell: "Callable[[str], None] | None",
) -> "CheckpointAnswer":
    from memplan.plan.checkpoint.blocks.call import plan_checkpoints
    from memplan.plan.checkpoint.blocks.request import BlockPlanRequest

    asked = command.plan
    request = BlockPlanRequest(
        budget_bytes=budget,
        method=cast("Method", asked.method or DEFAULT_METHOD),
        time_limit=asked.time_limit,
        offload=asked.offload,
        blocks=tuple(asked.blocks or ()),
    )
    return plan_checkpoints(spec, profile, request, timeout=command.job.timeout, progress=tell)


def _least(
    spec: "JobSpec", profile: "GpuProfile", slowdown: float, command: PlanCommand, tell: "Callable[[str], None] | None"
) -> "CheckpointAnswer":
    """The whole curve first; then the plan of its lowest point that is not too slow, proved by its own trace."""
    answer = _planned(spec, profile, profile.usable_bytes or NO_LIMIT, command, tell)
    for point in answer.pareto:
        if point.overhead_ratio <= slowdown and point.peak_bytes < answer.peak_after_bytes:
            lower = _planned(spec, profile, point.peak_bytes, command, tell)
            # The curve is a formula's but for what was traced: a plan may need more, or turn out slower.
            if lower.fits and lower.overhead_ratio <= slowdown:
                return lower
    return answer


def _write(output: outputs.Output, answer: "CheckpointAnswer", command: PlanCommand) -> None:
    from memplan.report.checkpoint import html as checkpoint_html
    from memplan.report.checkpoint import json as checkpoint_json
    from memplan.report.checkpoint import svg as checkpoint_svg
    from memplan.report.checkpoint import text as checkpoint
    from memplan.runtime.checkpoint.snippet import stand_alone_code

    report = command.report
    outputs.write_rendered(
        output,
        text=lambda width: checkpoint.render(
            answer, width=width, explain=report.explain, quiet=report.quiet, plan_file=str(command.plan.out or "")
        ),
        json=lambda: checkpoint_json.render(answer),
        svg=lambda: checkpoint_svg.render(answer),
        html=lambda: checkpoint_html.render(answer),
        code=lambda: stand_alone_code(answer.plan),
    )
