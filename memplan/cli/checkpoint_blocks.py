"""``memplan checkpoint-plan`` of an eager model's blocks."""

from typing import TYPE_CHECKING, cast

from memplan.cli import check, console, endings, outputs
from memplan.cli.checkpoint_options import DEFAULT_GPU, DEFAULT_METHOD, PlanCommand
from memplan.cli.estimate import load_named
from memplan.errors import ExitCode

if TYPE_CHECKING:
    from memplan.plan.checkpoint.blocks.answer.records import CheckpointAnswer
    from memplan.plan.checkpoint.blocks.request import Method


def run(command: PlanCommand) -> ExitCode:
    """Find a plan of a target's blocks, write it down and report it."""
    asked, problems = command.plan, command.problems
    if asked.budget_ratio is not None:
        problems.add("--budget-ratio is for graph files and --level op; give --budget")
    if command.gpu is None and asked.budget is None:
        problems.add("a budget is missing: give --gpu, --budget or both")
    spec = check.job_spec(command.target, command.job, problems)
    problems.of(check.no_program, spec, check.APPLIED)
    profiles = problems.of(load_named, [command.gpu or DEFAULT_GPU], command.profile_dir or [])
    problems.raise_if_any()
    from memplan.plan.checkpoint.blocks.call import plan_checkpoints
    from memplan.runtime.checkpoint.plan_file import write_plan

    with console.progress(enabled=not command.report.quiet) as tell:
        answer = plan_checkpoints(
            spec,
            profiles[0],
            command.budget,
            method=cast("Method", asked.method or DEFAULT_METHOD),
            time_limit=asked.time_limit,
            offload=asked.offload,
            blocks=tuple(asked.blocks or ()),
            timeout=command.job.timeout,
            progress=tell,
        )
    if asked.out is not None:
        write_plan(answer.plan, asked.out)
    for output in command.outputs:
        _write(output, answer, command)
    was_cut = answer.outcome == "timed_out"
    return endings.exit_code(found=answer.fits, was_cut=was_cut, exit_zero=command.report.exit_zero)


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
