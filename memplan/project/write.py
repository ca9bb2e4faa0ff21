"""A project file: what is traced as the table of a job, its first jobs, or further ones after those that are there."""

import shlex
import tomllib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, assert_never

import tomlkit
import tomlkit.items

from memplan.errors import UsageError
from memplan.files.read import SETTINGS, read_text
from memplan.files.write import write_whole
from memplan.job.program import parse_words
from memplan.job.spec import FileTarget, HubTarget, ModuleTarget, PresetTarget, ScriptTarget, Target
from memplan.project.find import OWN, SHARED, has_section, read_table, read_toml

BASELINE = "memplan-baseline.json"
"""Where the accepted figures lie, beside the project file."""
MAX_INCREASE = "2%"
"""Growth that a new project lets pass."""
_NO_JOB = """\
# [[{header}]]
# name = "train"
# target = "model.py"   # or package.module:factory, hf:DIR, preset:NAME; or script = "train.py"
# batch-size = 8        # every option of 'memplan estimate' is a key
"""


def project_of(folder: Path) -> tuple[Path, dict[str, Any] | None]:
    """Where the jobs of a folder belong, and what stands there of them; None: nothing yet.

    Raises:
        UsageError: A file that is there cannot be read.
    """
    own, shared = folder / OWN, folder / SHARED
    if own.is_file():
        return own, read_table(own)[0]
    if not shared.is_file():
        return own, None
    return shared, read_table(shared)[0] if has_section(shared) else None


def init_project(folder: Path, gpus: Sequence[str], jobs: Sequence[Mapping[str, Any]]) -> tuple[Path, str]:
    """Write jobs into a folder's project file: ``pyproject.toml``, or where there is none ``memplan.toml``.

    The GPUs are for all jobs of a project that is new. Without jobs a comment shows how one is written.

    Returns:
        The file, and what was added to it.

    Raises:
        UsageError: The file cannot be written, or takes no further tables at its end.
    """
    file, table = project_of(folder)
    path = ("tool", "memplan") if file.name == SHARED else ()
    text = section(gpus, jobs, *path) if table is None else _tables(path, {}, jobs)
    if file.is_file():
        _append(file, text)
    else:
        _write(file, text)
    return file, text


def section(gpus: Sequence[str], jobs: Sequence[Mapping[str, Any]], *path: str) -> str:
    """A project as TOML, with a table at a path; without one the file is the project's own."""
    top = {"gpus": list(gpus), "baseline": BASELINE, "max-increase": MAX_INCREASE}
    text = _tables(path, top, jobs)
    return text if jobs else f"{text}\n{_NO_JOB.format(header='.'.join((*path, 'job')))}"


def _tables(path: Sequence[str], top: Mapping[str, Any], jobs: Sequence[Mapping[str, Any]]) -> str:
    table = tomlkit.table(is_super_table=not top)
    for key, value in top.items():
        table.add(key, value)
    if jobs:
        rows = tomlkit.aot()
        for job in jobs:
            rows.append(tomlkit.item(dict(job)))
        table.add("job", rows)
    content: Any = table
    for name in reversed(path):
        above = tomlkit.table(is_super_table=True)
        above.add(name, content)
        content = above
    return tomlkit.dumps(content)


def _append(file: Path, text: str) -> None:
    """Put tables at the end of a file, every other byte of which stays what it is."""
    before, _ = read_toml(file)
    raw = read_text(file, SETTINGS)
    end = "\r\n" if "\r\n" in raw else "\n"
    gap = "" if not raw.strip() else end if raw.endswith("\n") else end * 2
    whole = raw + gap + text.replace("\n", end)
    try:
        added = tomllib.loads(whole)
    except ValueError as error:
        hint = f"write a {OWN} instead; it takes the same keys at its top"
        if file.name == OWN:
            hint = "write its jobs as [[job]] tables, after all other keys"
        raise UsageError(f"tables cannot stand at the end of {file}: {error}", hint=hint) from error
    assert added == _joined(before, tomllib.loads(text))  # noqa: S101
    _write(file, whole)


def _joined(before: Any, added: Any) -> Any:
    """A table with another one's keys and rows after its own."""
    if isinstance(before, dict) and isinstance(added, dict):
        return {**before, **{key: _joined(before[key], added[key]) if key in before else added[key] for key in added}}
    return before + added


def _write(file: Path, text: str) -> None:
    try:
        write_whole(file, text.encode("utf-8"))
    except OSError as error:
        raise UsageError(f"cannot write '{file}': {error.strerror}") from error


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
