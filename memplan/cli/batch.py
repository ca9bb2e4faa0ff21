"""``memplan batch``: the largest batch size, or sequence length, whose step fits."""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Annotated, cast

import typer

from memplan.cli import check, console, endings, groups, options, outputs
from memplan.cli.device import profiles_for
from memplan.cli.drawn import tail_plan
from memplan.cli.job import as_most_run_it, job_spec, lengths_of_job
from memplan.cli.options import option
from memplan.errors import UsageError
from memplan.findings.utilization import UTILIZATIONS, Utilization
from memplan.job.program_arguments import WORDS, Varied, at, varied_program
from memplan.job.spec import JobSpec, ScriptTarget
from memplan.job.target import format_target

if TYPE_CHECKING:
    from memplan.hardware.profile import GpuProfile
    from memplan.plan.batch.records import BatchAnswer, Variable

VARIABLES = ("batch-size", "seq-len")

Enlarged = Annotated[
    str, option("of", options.STEP, f"What is enlarged: {', '.join(VARIABLES)}.", metavar="NAME", default="batch-size")
]
Vary = Annotated[
    str | None,
    option("vary", options.STEP, "The argument of a program that decides it, as batch=--batch-size.",
           metavar="NAME=ARGUMENT", default="found in the program's parser"),
]  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchOptions:
    """What is searched, and where it must fit."""

    gpu: options.Gpus = None
    utilization: options.Room = None
    of: Enlarged = VARIABLES[0]
    vary: Vary = None


@groups.spread
def batch(
    target: options.TargetWords,
    *,
    asked: BatchOptions,
    job: groups.JobOptions,
    profile_dir: options.ProfileDirs = None,
    drawn: groups.DrawnOptions,
    cache: groups.CacheOptions,
    report: groups.SearchReportOptions,
) -> None:
    """Find the largest batch, or sequence, that fits.

    Traces at the answer and at one more confirm it. Exit 3 where not even 1
    fits, 4 where no value that fits was found. With --seq-len-dist it is the
    largest batch of the longest length, beside the chance that steps of drawn
    lengths run out all the same.
    """
    problems = check.Problems()
    wanted = problems.of(outputs.parse_outputs, report.formats or [], report.as_json) or ()
    problems.add(*_wrong(asked))
    spec = problems.of(_varied, job_spec(target, job, problems), asked)
    profiles = problems.of(profiles_for, asked.gpu, profile_dir)
    lengths_of_job(spec, job, drawn, problems)
    plan = tail_plan(profiles or (), drawn, problems)
    if plan is not None and asked.of != VARIABLES[0]:
        problems.add("--seq-len-dist draws lengths, so that --of seq-len enlarges nothing")
    problems.raise_if_any()
    spec = as_most_run_it(spec, job, profiles, by_trainer=plan is None)
    from memplan.plan.batch.compose import largest_batches

    longest = spec
    if plan is not None:
        from memplan.simulate.tail_of_batch import batches_with_tails
        from memplan.simulate.tail_of_job import at_longest

        longest = at_longest(spec, plan)
    with console.progress() as tell:
        answers = largest_batches(
            longest,
            profiles,
            variable=cast("Variable", asked.of.replace("-", "_")),
            utilization=cast("Utilization | None", asked.utilization),
            timeout=job.timeout,
            cache=cache.opened(),
            progress=tell,
        )
        if plan is not None:
            answers = batches_with_tails(
                answers,
                spec,
                profiles,
                plan,
                lengths=drawn.seq_len_dist or "",
                timeout=job.timeout,
                cache=cache.opened(),
                progress=tell,
            )
    for output in wanted:
        _write(output, format_target(spec.target), list(zip(profiles, answers, strict=True)), report)
    left = [answer for answer in answers if not answer.value]
    was_cut = any(answer.ended == "limit" for answer in left)
    raise typer.Exit(endings.exit_code(found=not left, was_cut=was_cut, exit_zero=report.exit_zero))


def _write(
    output: outputs.Output,
    target: str,
    found: "list[tuple[GpuProfile, BatchAnswer]]",
    report: groups.SearchReportOptions,
) -> None:
    from memplan.report.batch import json as batch_json
    from memplan.report.batch import text

    outputs.write_rendered(
        output,
        text=lambda width: text.render(target, found, width=width, quiet=report.quiet, explain=report.explain),
        json=lambda: batch_json.render(target, found),
    )


def _varied(spec: JobSpec, asked: BatchOptions) -> JobSpec:
    """The job with the argument that decides what is enlarged, and with its value."""
    variable = WORDS.get(asked.of, "batch_size")
    typed = _vary(asked.vary)
    if not isinstance(spec.target, ScriptTarget):
        if typed is not None:
            raise UsageError("--vary names an argument of a program, and this is none")
        return spec
    if typed is not None and typed[0] != variable:
        raise UsageError(f"--vary {asked.vary} is not what is enlarged: --of {asked.of}")
    target, now = varied_program(spec.target, variable, typed and typed[1])
    known = replace(spec, target=target)
    return known if now is None else at(known, variable, now)


def _vary(text: str | None) -> tuple[Varied, str] | None:
    """What ``--vary`` says.

    Raises:
        UsageError: It is of another form.
    """
    if text is None:
        return None
    word, _, name = text.partition("=")
    if word not in WORDS or not name.startswith("-"):
        raise UsageError(f"--vary takes batch=--ARGUMENT or seq-len=--ARGUMENT, not '{text}'")
    return WORDS[word], name


def _wrong(asked: BatchOptions) -> Iterator[str]:
    yield from check.wrong_word("--utilization", asked.utilization, UTILIZATIONS)
    yield from check.wrong_word("--of", asked.of, VARIABLES)
