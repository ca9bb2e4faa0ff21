"""``memplan validate``: run the step for real on the device at hand, and put predicted beside measured."""

import re
from collections.abc import Iterator
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Annotated

import typer

from memplan.cli import check, console, groups, options, outputs
from memplan.cli.job import as_most_run_it, job_spec
from memplan.cli.options import option
from memplan.errors import UsageError
from memplan.job.limits import MAX_COUNT

RUN = "Run"
DEFAULT_SECONDS = 60.0

TargetWords = Annotated[
    list[str] | None,
    typer.Argument(
        metavar="TARGET",
        help="As for estimate: a target, or a program, train.py -- ARGS; none with --calibrate.",
        show_default=False,
    ),
]
Device = Annotated[str, option("device", options.DEVICE, "auto, cpu, cuda or cuda:N.", metavar="NAME", default="auto")]
Calibrate = Annotated[
    bool, option("calibrate", options.DEVICE, "Measure the device itself and write a GPU profile of it.")
]
ProfileOut = Annotated[
    Path | None,
    option("out", options.DEVICE, "Where the profile goes.", metavar="FILE", default="your profile folder", short="-o"),
]
Steps = Annotated[
    int | None, option("steps", RUN, "Steps to run.", metavar="N", default="until nothing changes any more")
]
Seconds = Annotated[
    float,
    option(
        "seconds", RUN, "No further step begins after so long.", metavar="TIME", default="60s", parser=options.seconds
    ),
]
Force = Annotated[bool, option("force", RUN, "Run even where the prediction does not fit.")]
KeepSnapshot = Annotated[
    Path | None,
    option("keep_snapshot", RUN, "Keep the run's CUDA memory snapshot, for memplan snapshot.", metavar="FILE"),
]


@dataclass(frozen=True, slots=True, kw_only=True)
class RunOptions:
    """How the real run goes."""

    steps: Steps = None
    seconds: Seconds = DEFAULT_SECONDS
    force: Force = False
    keep_snapshot: KeepSnapshot = None


@groups.spread
def validate(
    target: TargetWords = None,
    *,
    device: Device = "auto",
    real: RunOptions,
    calibrate: Calibrate = False,
    out: ProfileOut = None,
    job: groups.JobOptions,
    profile_dir: options.ProfileDirs = None,
    report: groups.ReportOptions,
) -> None:
    """Run the step for real here: predicted beside measured.

    Both run in child processes. A run whose prediction does not fit is refused.
    """
    problems = check.Problems()
    wanted = problems.of(outputs.parse_outputs, report.formats or [], report.as_json) or ()
    problems.add(*_wrong_device(device), *_wrong_run(real))
    if calibrate:
        idle = [*_typed(real), *job.typed(), *_typed(report), *(["profile_dir"] if profile_dir else [])]
        problems.add(*check.wrong_values({"timeout": job.timeout}), *_wrong_calibration(target, idle, out))
        problems.raise_if_any()
        _calibrate(device, out, job.timeout)
        return
    if out is not None:
        problems.add("--out goes with --calibrate alone")
    if not target:
        raise UsageError("a target is missing", hint="memplan validate TARGET, or memplan validate --calibrate")
    spec = job_spec(target, job, problems)
    problems.raise_if_any()
    spec = as_most_run_it(spec, job, [])
    from memplan.report.validate.json import render as render_json
    from memplan.report.validate.text import render as render_text
    from memplan.validate.compose import validate as run

    with console.progress() as tell:
        found = run(
            spec,
            device=device,
            steps=real.steps,
            seconds=real.seconds,
            timeout=job.timeout,
            force=real.force,
            keep=real.keep_snapshot,
            profile_dirs=tuple(profile_dir or ()),
            progress=tell,
        )
    for output in wanted:
        outputs.write_rendered(
            output,
            text=lambda width: render_text(found, width=width, explain=report.explain, quiet=report.quiet),
            json=lambda: render_json(found),
        )


def _typed(group: RunOptions | groups.ReportOptions) -> list[str]:
    """Options of a group that a calibration does not use and that were typed; ``--seconds`` always has a value."""
    names = [field.name for field in fields(group) if field.name not in {"quiet", "seconds"}]
    return [name for name in names if groups.is_given(getattr(group, name))]


def _wrong_device(device: str) -> Iterator[str]:
    if not re.fullmatch(r"auto|cpu|cuda(:\d+)?", device):
        yield f"--device takes auto, cpu, cuda or cuda:N, not '{device}'"


def _wrong_run(real: RunOptions) -> Iterator[str]:
    if real.steps is not None and not 1 <= real.steps <= MAX_COUNT:
        yield f"--steps must be between 1 and {MAX_COUNT}, not {real.steps}"
    if not real.seconds >= 0:
        yield f"--seconds must be a number of seconds, not {real.seconds}"
    yield from _unwritable("keep_snapshot", real.keep_snapshot)


def _wrong_calibration(target: list[str] | None, idle: list[str], out: Path | None) -> Iterator[str]:
    if target:
        yield "--calibrate measures the device and takes no target"
    if idle:
        flags = ", ".join(options.flag(name) for name in idle)
        yield f"{flags} would change nothing: --calibrate runs no step and writes a profile"
    yield from _unwritable("out", out)


def _unwritable(name: str, path: Path | None) -> Iterator[str]:
    # Checked before the run, so that minutes of work are not lost to a typing error.
    if path is not None and (path.is_dir() or not path.parent.is_dir()):
        yield f"{options.flag(name)}: cannot write a file '{path}'; its folder must exist"


def _calibrate(device: str, out: Path | None, timeout: float) -> None:
    from memplan.report.validate.calibration import render
    from memplan.validate.calibrate import calibrate

    with console.progress() as tell:
        found = calibrate(device, profile_out=out, timeout=timeout, progress=tell)
    console.write_lines(render(found, width=console.terminal_width()))
