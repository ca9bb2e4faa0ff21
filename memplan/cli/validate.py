"""``memplan validate``: run the step for real on the device at hand, and put predicted beside measured."""

import re
from dataclasses import fields
from pathlib import Path
from typing import Annotated, Any

import typer

from memplan.cli import check, console, options, outputs
from memplan.errors import UsageError
from memplan.job.spec import JobSpec

_DEVICE, _RUN = "Device", "Run"


def _own(panel: str, *words: str, help_text: str, metavar: str | None = None) -> Any:
    return typer.Option(*words, help=help_text, metavar=metavar, rich_help_panel=panel, show_default=False)


Target = Annotated[
    str | None,
    typer.Argument(metavar="TARGET", help="As for estimate; none with --calibrate.", show_default=False),
]
Device = Annotated[
    str, _own(_DEVICE, "--device", help_text="auto, cpu, cuda or cuda:N. (default: auto)", metavar="NAME")
]
Steps = Annotated[
    int | None,
    _own(_RUN, "--steps", help_text="Steps to run. (default: until nothing changes any more)", metavar="N"),
]
Seconds = Annotated[
    float, _own(_RUN, "--seconds", help_text="No further step begins after so long. (default: 60)", metavar="SECONDS")
]
Force = Annotated[bool, _own(_RUN, "--force", help_text="Run even where the prediction does not fit.")]
KeepSnapshot = Annotated[
    Path | None,
    _own(
        _RUN, "--keep-snapshot", help_text="Keep the run's CUDA memory snapshot, for memplan snapshot.", metavar="FILE"
    ),
]
Calibrate = Annotated[
    bool, _own(_DEVICE, "--calibrate", help_text="Measure the device itself and write a GPU profile of it.")
]
ProfileOut = Annotated[
    Path | None,
    _own(_DEVICE, "--profile-out", help_text="Where the profile goes. (default: your profile folder)", metavar="FILE"),
]


_OF_CALIBRATION = {"target", "device", "calibrate", "profile_out", "timeout", "quiet", "seconds"}
"""What a calibration uses, what is complained of elsewhere, and what always has a value."""


def validate(
    target: Target = None,
    *,
    device: Device = "auto",
    steps: Steps = None,
    seconds: Seconds = 60.0,
    force: Force = False,
    keep_snapshot: KeepSnapshot = None,
    calibrate: Calibrate = False,
    profile_out: ProfileOut = None,
    allow_network: options.AllowNetwork = False,
    trust_remote_code: options.TrustRemoteCode = False,
    timeout: options.Timeout = options.DEFAULT_TIMEOUT,
    batch_size: options.BatchSize = None,
    seq_len: options.SeqLen = None,
    inputs: options.Inputs = None,
    precision: options.Precision = None,
    optimizer: options.Optimizer = None,
    optimizer_impl: options.OptimizerImpl = None,
    grad_accum: options.GradAccum = None,
    clip_grad_norm: options.ClipGradNorm = None,
    attention: options.Attention = None,
    checkpoint: options.Checkpoint = None,
    mode: options.Mode = None,
    max_new_tokens: options.MaxNewTokens = None,
    data_dependent: options.DataDependent = None,
    profile_dir: options.ProfileDirs = None,
    formats: options.Formats = None,
    as_json: options.AsJson = False,
    explain: options.Explain = False,
    quiet: options.Quiet = False,
) -> None:
    """Run the step for real on this machine: predicted beside measured.

    Both run in child processes. A run whose prediction does not fit is refused.
    """
    typed = dict(locals())  # First, while the parameters are all there is.
    job = {field.name: typed[field.name] for field in fields(JobSpec) if field.name in typed and field.name != "target"}
    problems = check.Problems()
    reports = problems.of(outputs.parse_outputs, formats or [], as_json) or ()
    problems.add(*check.wrong_values({"timeout": timeout}), *_wrong(typed))
    if calibrate:
        problems.raise_if_any()
        _calibrate(device, profile_out, timeout, quiet=quiet)
        return
    if target is None:
        raise UsageError("a target is missing", hint="memplan validate TARGET, or memplan validate --calibrate")
    spec = check.job_spec(target, job, problems)
    problems.raise_if_any()
    from memplan.report.validate import render as render_text
    from memplan.report.validate_json import render as render_json
    from memplan.validate.compose import validate as run

    with console.progress(enabled=not quiet) as tell:
        found = run(
            spec,
            device=device,
            steps=steps,
            seconds=seconds,
            timeout=timeout,
            force=force,
            keep=keep_snapshot,
            profile_dirs=tuple(profile_dir or ()),
            progress=tell,
        )
    for report in reports:
        outputs.write_rendered(
            report,
            text=lambda width: render_text(found, width=width, explain=explain, quiet=quiet),
            json=lambda: render_json(found),
        )


def _wrong(typed: dict[str, Any]) -> list[str]:
    """A sentence for each of this command's own options whose value cannot be."""
    problems = []
    if typed["steps"] is not None and not 1 <= typed["steps"] <= check.MAX_COUNT:
        problems.append(f"--steps must be between 1 and {check.MAX_COUNT}, not {typed['steps']}")
    if not typed["seconds"] >= 0:
        problems.append(f"--seconds must be a number of seconds, not {typed['seconds']}")
    if not re.fullmatch(r"auto|cpu|cuda(:\d+)?", typed["device"]):
        problems.append(f"--device takes auto, cpu, cuda or cuda:N, not '{typed['device']}'")
    if typed["profile_out"] is not None and not typed["calibrate"]:
        problems.append("--profile-out goes with --calibrate alone")
    if typed["calibrate"] and typed["target"] is not None:
        problems.append("--calibrate measures the device and takes no target")
    if typed["calibrate"] and (idle := _idle(typed)):
        problems.append(f"{', '.join(idle)} would change nothing: --calibrate runs no step and writes a profile")
    for flag in ("keep_snapshot", "profile_out"):
        path = typed[flag]
        # Checked before the run, so that minutes of work are not lost to a typing error.
        if path is not None and (path.is_dir() or not path.parent.is_dir()):
            problems.append(f"{options.flag(flag)}: cannot write a file '{path}'; its folder must exist")
    return problems


def _idle(typed: dict[str, Any]) -> list[str]:
    """Options that were given and that a calibration does not use."""
    names = {"formats": "--format", "as_json": "--json"}
    given = [name for name, value in typed.items() if name not in _OF_CALIBRATION and value not in (None, False, [])]
    return [names.get(name, options.flag(name)) for name in given]


def _calibrate(device: str, profile_out: Path | None, timeout: float, *, quiet: bool) -> None:
    from memplan.report.calibration import render
    from memplan.validate.calibrate import calibrate

    with console.progress(enabled=not quiet) as tell:
        found = calibrate(device, profile_out=profile_out, timeout=timeout, progress=tell)
    console.write_lines(render(found, width=console.terminal_width()))
