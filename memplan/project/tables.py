"""What is traced, as the table of a job: named, placed, and told from the jobs that are there."""

import shlex
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, assert_never

from memplan.job.program import parse_words
from memplan.job.spec import FileTarget, HubTarget, ModuleTarget, PresetTarget, ScriptTarget, Target
from memplan.project.write import MAX_INCREASE


def found_job(typed: str) -> dict[str, Any]:
    """What was found, as a job: a file that trains is a program."""
    target = parse_words([typed]).target
    return {"name": name_of(target), **place_keys([typed], target)}


def place_keys(words: Sequence[str], target: Target) -> dict[str, Any]:
    """Keys of a project file that name what is traced."""
    if not isinstance(target, ScriptTarget):
        return {"target": words[0]}
    first, *rest = words
    if not first.endswith(".py"):  # A launcher, whose own options stand before the program.
        return {"script": shlex.join(words)}
    return {"script": first, **({"args": rest} if rest else {})}


def typed_place(table: Mapping[str, Any]) -> str:
    """Return the target or program of a job."""
    return str(table.get("target") or table.get("script"))


def is_there(table: Mapping[str, Any], project: Mapping[str, Any]) -> bool:
    """Is it a job of the project already, whatever its name and options? One that was typed may have others."""
    same = [job for job in project.get("job", ()) if typed_place(job) == typed_place(table)]
    return any(set(table) <= {"name", "target", "script"} or _same_options(job, table) for job in same)


def _same_options(job: Mapping[str, Any], table: Mapping[str, Any]) -> bool:
    return all(job.get(key) == value for key, value in table.items() if key != "name")


def with_own_names(tables: Sequence[dict[str, Any]], project: Mapping[str, Any]) -> list[dict[str, Any]]:
    """The tables, each with a name of its own."""
    taken = {str(job.get("name")) for job in project.get("job", ())}
    named = []
    for table in tables:
        name, number = str(table["name"]), 2
        while name in taken:
            name, number = f"{table['name']}-{number}", number + 1
        taken.add(name)
        named.append({**table, "name": name})
    return named


def keys_beside(project: Mapping[str, Any], gpus: Sequence[str], *, typed: bool) -> dict[str, Any]:
    """Keys of a job that the top of a file which is there does not say for it."""
    extra: dict[str, Any] = {"gpus": list(gpus)} if typed or "gpus" not in project else {}
    if "baseline" in project and "max-increase" not in project:
        extra["max-increase"] = MAX_INCREASE
    return extra


def name_of(target: Target) -> str:
    """Return what a job is called whose target has no name of its own."""
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
