"""``memplan batch``: the largest batch size, or sequence length, whose step fits."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, cast

import typer

from memplan.cli import check, console, groups, options, outputs
from memplan.cli.estimate import load_profiles
from memplan.cli.options import option
from memplan.errors import ExitCode
from memplan.plan.batch.headroom import UTILIZATIONS, Utilization

if TYPE_CHECKING:
    from memplan.hardware.profile import GpuProfile
    from memplan.plan.batch.records import BatchAnswer, Variable

VARIABLES = ("batch-size", "seq-len")

Gpus = Annotated[
    list[str] | None,
    option("gpu", options.DEVICE, "GPU profile, as 'memplan gpus' lists them. Repeatable.", metavar="NAME"),
]
Room = Annotated[
    str | None,
    option("utilization", options.DEVICE, f"Room to leave: {', '.join(UTILIZATIONS)}.", metavar="NAME",
           default="what the interval needs"),
]  # fmt: skip
Enlarged = Annotated[
    str, option("of", options.STEP, f"What is enlarged: {', '.join(VARIABLES)}.", metavar="NAME", default="batch-size")
]


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchOptions:
    """What is searched, and where it must fit."""

    gpu: Gpus = None
    utilization: Room = None
    of: Enlarged = VARIABLES[0]


@groups.spread
def batch(
    target: options.Target,
    *,
    asked: BatchOptions,
    job: groups.JobOptions,
    profile_dir: options.ProfileDirs = None,
    cache: groups.CacheOptions,
    report: groups.ReportOptions,
) -> None:
    """Find the largest batch, or sequence, that fits.

    Traces at the answer and at one more confirm it. Exit 3 where not even 1 fits.
    """
    problems = check.Problems()
    wanted = problems.of(outputs.parse_outputs, report.formats or [], report.as_json) or ()
    problems.add(*_wrong(asked))
    spec = check.job_spec(target, job, problems)
    profiles = problems.of(load_profiles, asked.gpu or [], profile_dir or [])
    problems.raise_if_any()
    from memplan.plan.batch.compose import largest_batches

    with console.progress(enabled=not report.quiet) as tell:
        answers = largest_batches(
            spec,
            profiles,
            variable=cast("Variable", asked.of.replace("-", "_")),
            utilization=cast("Utilization | None", asked.utilization),
            timeout=job.timeout,
            cache=cache.opened(),
            progress=tell,
        )
    for output in wanted:
        _write(output, target, list(zip(profiles, answers, strict=True)), report)
    raise typer.Exit(ExitCode.DONE if all(answer.value for answer in answers) else ExitCode.UNKNOWN)


def _write(
    output: outputs.Output,
    target: str,
    found: "list[tuple[GpuProfile, BatchAnswer]]",
    report: groups.ReportOptions,
) -> None:
    from memplan.report.batch import json as batch_json
    from memplan.report.batch import text

    outputs.write_rendered(
        output,
        text=lambda width: text.render(target, found, width=width, quiet=report.quiet, explain=report.explain),
        json=lambda: batch_json.render(target, found),
    )


def _wrong(asked: BatchOptions) -> Iterator[str]:
    if not asked.gpu:
        yield "a device is missing: give --gpu"
    if asked.utilization is not None and asked.utilization not in UTILIZATIONS:
        yield f"--utilization must be one of {', '.join(UTILIZATIONS)}, not '{asked.utilization}'"
    if asked.of not in VARIABLES:
        yield f"--of must be one of {', '.join(VARIABLES)}, not '{asked.of}'"
