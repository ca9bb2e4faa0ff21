"""``memplan init``: the jobs of a repository, found, traced and written into its project file."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from memplan.cli import check, console, groups, options
from memplan.cli.device import profiles_for
from memplan.cli.job import job_spec
from memplan.errors import ExitCode, UsageError
from memplan.project.keys import key_of
from memplan.project.search import MOST, candidates
from memplan.project.write import (
    found_job,
    init_project,
    is_there,
    keys_beside,
    name_of,
    place_keys,
    project_of,
    typed_place,
    with_own_names,
)
from memplan.units import format_bytes

if TYPE_CHECKING:
    from memplan.gate.adopt import Adopted

Wanted = Annotated[
    list[str] | None,
    typer.Argument(metavar="[TARGET]", help="As for estimate, or a program: train.py -- ARGS; none: what is found.",
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
    """Write the jobs of a repository into its project file.

    Without TARGET, models and training programs of this folder are found. Each is traced before it is written, with a
    budget, into pyproject.toml or memplan.toml, beside what is there; the figures become the baseline.
    """
    if target_file is not None:
        _write_target_file(options.alone(target) if target else None, target_file)
        return
    problems = check.Problems()
    folder = Path()
    profiles = problems.of(profiles_for, gpu, None) or ()
    spec = job_spec(target, job, problems) if target else None
    if spec is None and (name is not None or job.typed()):
        problems.add("a name and options are a job's: give its TARGET")
    problems.raise_if_any()
    file, project = project_of(folder)
    is_new, there = project is None, project or {}
    if there.get("job"):
        from memplan.project.read import load_project

        # Jobs beside others that are wrong could be written, but never read.
        load_project(file)
    if spec is not None:
        tables = [{"name": name or name_of(spec.target), **place_keys(target or (), spec.target), **_keys(job)}]
    else:
        tables = [found_job(typed) for typed in candidates(folder)]
    tables = with_own_names([table for table in tables if not is_there(table, there)], there)
    from memplan.gate.adopt import adopt
    from memplan.measure.cache import Cache, default_folder

    if spec is None and tables:
        console.tell(f"tracing {', '.join(typed_place(table) for table in tables[:MOST])}\n")
    with console.progress() as tell:
        adopted = adopt(tables[:MOST], profiles, cache=Cache(default_folder()), progress=tell)
    ready = [each for each in adopted if not each.problem]
    _tell_left_out([each for each in adopted if each.problem], tables[MOST:])
    if spec is not None and not ready and tables:
        console.write_plain("nothing was written: put right what keeps this job from being traced\n")
        raise typer.Exit(ExitCode.UNKNOWN)
    if not is_new and not ready:
        console.write_plain(f"nothing to add to {file}: it has every job that can be traced\n")
        return
    names = [profile.name for profile in profiles]
    extra = {} if is_new else keys_beside(there, names, typed=bool(gpu))
    file, text = init_project(folder, names, [{**each.keys, **extra} for each in ready])
    for each in ready:
        console.write_plain(_line(each) + "\n")
    console.write_plain(f"wrote to {file}:\n\n{text}\n")
    if not ready:
        console.write_plain(f"next: add a job to {file}, then: memplan gate --update-baseline\n")
        return
    console.write_plain(_accepted(file, [str(each.keys["name"]) for each in ready]))
    console.write_plain("next: memplan gate\n")


def _line(adopted: "Adopted") -> str:
    """A traced job and its peak on each GPU."""
    peaks = [
        f"{estimate.gpu.name} {format_bytes(estimate.peak.device_bytes)} {str(estimate.verdict).upper()}"
        for estimate in adopted.estimates
    ]
    return f"{adopted.keys['name']}: {', '.join(peaks)}"


def _tell_left_out(failed: "Sequence[Adopted]", unseen: Sequence[Mapping[str, Any]]) -> None:
    for each in failed:
        console.tell(f"left out {typed_place(each.keys)}: {each.problem}\n")
    if unseen:
        console.tell(f"not looked at, add what you want of them: {', '.join(map(typed_place, unseen))}\n")


def _accepted(file: Path, names: Sequence[str]) -> str:
    """Write the figures of new jobs into the project's baseline, and say so; they were kept when they were traced."""
    from memplan.gate.flow import GateOptions, gate
    from memplan.job.side_by_side import processors
    from memplan.measure.cache import Cache, default_folder
    from memplan.project.overrides import Overrides
    from memplan.project.read import load_project

    project = load_project(file, Overrides(jobs=names))
    if project.baseline is None:
        return 'growth is not judged: add  baseline = "memplan-baseline.json"  to the top of the file\n'
    asked = GateOptions(at_once=processors(), cache=Cache(default_folder()), update_baseline=True, whole=False)
    result = gate(project, asked)
    return "".join(f"{note}\n" for note in result.notes)


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


def _keys(job: groups.JobOptions) -> dict[str, Any]:
    """What was typed, as keys of a job."""
    config = [str(path) for path in job.config or ()]
    keys: dict[str, Any] = {"config": config[0] if len(config) == 1 else config} if config else {}
    keys |= {key_of(field): value for field, value in job.given.items()}
    return keys if job.timeout == options.DEFAULT_TIMEOUT else keys | {"timeout": f"{job.timeout:g}s"}
