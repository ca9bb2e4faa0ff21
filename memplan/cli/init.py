"""``memplan init``: the first project file of a repository."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, assert_never

import typer

from memplan.cli import check, console, groups, options
from memplan.cli.device import profiles_for
from memplan.errors import MemplanError, UsageError
from memplan.job.spec import FileTarget, HubTarget, ModuleTarget, PresetTarget, ScriptTarget, Target
from memplan.project.keys import key_of
from memplan.project.write import init_project

if TYPE_CHECKING:
    from collections.abc import Sequence

    from memplan.hardware.profile import GpuProfile
    from memplan.job.spec import JobSpec

Wanted = Annotated[
    str | None, typer.Argument(metavar="TARGET", help="As for estimate; none: an example to fill in.",
                               show_default=False),
]  # fmt: skip
Name = Annotated[
    str | None, options.option("name", None, "What reports call the job.", metavar="NAME", default="the target's own")
]


TargetFile = Annotated[
    Path | None,
    options.option("target_file", None, "Write a target file made of TARGET, a script, instead.", metavar="FILE",
                   default="the project file"),
]  # fmt: skip


@groups.spread
def init(
    target: Wanted = None,
    *,
    gpu: options.Gpus = None,
    name: Name = None,
    target_file: TargetFile = None,
    job: groups.JobOptions,
) -> None:
    """Write the first job of a repository into its project file.

    That is pyproject.toml, or where there is none memplan.toml. Options of estimate become keys of the job, which is
    traced once, to say whether it can be.
    """
    if target_file is not None:
        _write_target_file(target, target_file)
        return
    problems = check.Problems()
    profiles = problems.of(profiles_for, gpu, None) or ()
    spec = check.job_spec(target, job, problems) if target is not None else None
    if spec is None and (name is not None or job.typed()):
        problems.add("a name and options are a job's: give its TARGET")
    problems.raise_if_any()
    table = None if spec is None else {"name": name or _name(spec.target), "target": target, **_keys(job)}
    file, text = init_project(Path(), [profile.name for profile in profiles], table)
    console.write_plain(f"wrote to {file}:\n\n{text}\n")
    if spec is None:
        console.write_plain(f"next: add a job to {file}, then: memplan gate\n")
        return
    wrong = _what_is_wrong(spec, profiles, job.timeout)
    if wrong:
        console.write_plain(f"next: put right what keeps this job from being traced, then: memplan gate\n{wrong}\n")
        return
    console.write_plain("next: memplan gate\n")


def _write_target_file(script: str | None, file: Path) -> None:
    from memplan.files.write import write_whole
    from memplan.job.target import existing_file
    from memplan.project.target_file import target_file

    if script is None:
        raise UsageError("--target-file is made of a script", hint="memplan init train.py --target-file model.py")
    if file.exists():
        raise UsageError(f"{file} is there already", hint="name another file")
    text = target_file(existing_file(Path(script)))
    write_whole(file, text.encode("utf-8"))
    console.write_plain(f"wrote to {file}:\n\n{text}\n")
    console.write_plain(f"next: complete what is marked, then: memplan estimate {file}\n")


def _what_is_wrong(spec: "JobSpec", profiles: "Sequence[GpuProfile]", timeout: float) -> str:
    """Why the gate would have no figure of a job; empty where it has one. The job is traced, as the gate does it."""
    from memplan.measure.cache import Cache, default_folder
    from memplan.measure.compose import estimate
    from memplan.measure.records import Verdict

    try:
        [result] = estimate(spec, profiles[:1], timeout=timeout, cache=Cache(default_folder()))
    except MemplanError as error:
        return str(error)
    return "" if result.estimate.verdict is not Verdict.UNKNOWN else "; ".join(result.estimate.not_modelled)


def _keys(job: groups.JobOptions) -> dict[str, Any]:
    """What was typed, as keys of a job."""
    config = [str(path) for path in job.config or ()]
    keys: dict[str, Any] = {"config": config[0] if len(config) == 1 else config} if config else {}
    keys |= {key_of(field): value for field, value in job.given.items()}
    return keys if job.timeout == options.DEFAULT_TIMEOUT else keys | {"timeout": f"{job.timeout:g}s"}


def _name(target: Target) -> str:
    match target:
        case FileTarget(path=path):
            return path.stem
        case ModuleTarget(module=module):
            return module.rpartition(".")[2]
        case HubTarget(location=location):
            return Path(location).resolve().stem if Path(location).exists() else location.rpartition("/")[2]
        case PresetTarget(name=name):
            return name
        case ScriptTarget(path=path, module=module):
            return path.stem if path is not None else str(module).rpartition(".")[2]
    assert_never(target)
