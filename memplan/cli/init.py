"""``memplan init``: the first project file of a repository."""

from pathlib import Path
from typing import Annotated, Any, assert_never

import typer

from memplan.cli import check, console, groups, options
from memplan.cli.estimate import load_profiles
from memplan.job.spec import FileTarget, HubTarget, ModuleTarget, PresetTarget, Target
from memplan.project.keys import key_of
from memplan.project.write import init_project

DEFAULT_GPU = "h100-80g"

Wanted = Annotated[
    str | None, typer.Argument(metavar="TARGET", help="As for estimate; none: an example to fill in.",
                               show_default=False),
]  # fmt: skip
Gpus = Annotated[
    list[str] | None,
    options.option("gpu", options.DEVICE, "GPU profile, as 'memplan gpus' lists them. Repeatable.", metavar="NAME",
                   default=DEFAULT_GPU),
]  # fmt: skip
Name = Annotated[
    str | None, options.option("name", None, "What reports call the job.", metavar="NAME", default="the target's own")
]


@groups.spread
def init(target: Wanted = None, *, gpu: Gpus = None, name: Name = None, job: groups.JobOptions) -> None:
    """Write the first job of a repository into its project file.

    That is pyproject.toml, or where there is none memplan.toml. Options of estimate become keys of the job.
    """
    problems = check.Problems()
    profiles = problems.of(load_profiles, gpu or [DEFAULT_GPU], []) or ()
    spec = check.job_spec(target, job, problems) if target is not None else None
    if spec is None and (name is not None or job.typed()):
        problems.add("a name and options are a job's: give its TARGET")
    problems.raise_if_any()
    table = None if spec is None else {"name": name or _name(spec.target), "target": target, **_keys(job)}
    file, text = init_project(Path(), [profile.name for profile in profiles], table)
    next_command = "memplan gate" if table is not None else f"add a job to {file}, then: memplan gate"
    console.write_plain(f"wrote to {file}:\n\n{text}\nnext: {next_command}\n")


def _keys(job: groups.JobOptions) -> dict[str, Any]:
    """What was typed, as keys of a job."""
    config = [str(path) for path in job.config or ()]
    keys: dict[str, Any] = {"config": config[0] if len(config) == 1 else config} if config else {}
    keys |= {key_of(field): value for field, value in job.given().items()}
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
    assert_never(target)
