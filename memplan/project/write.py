"""The first version of a project file: one job, as it was typed."""

import tomllib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import tomlkit
import tomlkit.items

from memplan.errors import UsageError
from memplan.files.read import SETTINGS, read_text
from memplan.files.write import write_whole
from memplan.project.find import OWN, SHARED, has_section, read_toml

BASELINE = "memplan-baseline.json"
"""Where the accepted figures lie, beside the project file."""
_NO_JOB = """\
# [[{header}]]
# name = "train"
# target = "model.py"   # or package.module:factory, hf:DIR, preset:NAME
# batch-size = 8        # every option of 'memplan estimate' is a key
"""


def init_project(folder: Path, gpus: Sequence[str], job: Mapping[str, Any] | None) -> tuple[Path, str]:
    """Write ``[tool.memplan]`` into a folder's ``pyproject.toml``, or where there is none a ``memplan.toml``.

    Args:
        folder: Where.
        gpus: For all jobs.
        job: Key → value of the first job; None: a comment shows how one is written.

    Returns:
        The file, and what was added to it.

    Raises:
        UsageError: The folder names its jobs already, or the file cannot be written.
    """
    own, shared = folder / OWN, folder / SHARED
    if own.exists():
        raise UsageError(f"{own} is there already", hint="add a [[job]] to it")
    if not shared.is_file():
        text = section(gpus, job)
        _write(own, text)
        return own, text
    if has_section(shared):
        raise UsageError(f"{shared} has [tool.memplan] already", hint="add a [[tool.memplan.job]] to it")
    text = section(gpus, job, "tool", "memplan")
    _append(shared, text)
    return shared, text


def section(gpus: Sequence[str], job: Mapping[str, Any] | None, *path: str) -> str:
    """A project as TOML.

    Args:
        gpus: For all jobs.
        job: The first job.
        path: Of its table; empty: the file is the project's own.
    """
    table = tomlkit.table()
    table.add("gpus", list(gpus))
    table.add("baseline", BASELINE)
    if job is not None:
        jobs = tomlkit.aot()
        jobs.append(tomlkit.item(dict(job)))
        table.add("job", jobs)
    content: Any = table
    for name in reversed(path):
        above = tomlkit.table(is_super_table=True)
        above.add(name, content)
        content = above
    text = tomlkit.dumps(content)
    return text if job is not None else f"{text}\n{_NO_JOB.format(header='.'.join((*path, 'job')))}"


def _append(file: Path, text: str) -> None:
    """Put a section at the end of a file, every other byte of which stays what it is."""
    before, _ = read_toml(file)
    raw = read_text(file, SETTINGS)
    end = "\r\n" if "\r\n" in raw else "\n"
    gap = "" if not raw.strip() else end if raw.endswith("\n") else end * 2
    whole = raw + gap + text.replace("\n", end)
    try:
        added = tomllib.loads(whole)
    except ValueError as error:
        hint = f"write a {OWN} instead; it takes the same keys at its top"
        raise UsageError(f"[tool.memplan] cannot stand at the end of {file}: {error}", hint=hint) from error
    assert {**added["tool"], "memplan": None} == {**before.get("tool", {}), "memplan": None}  # noqa: S101
    _write(file, whole)


def _write(file: Path, text: str) -> None:
    try:
        write_whole(file, text.encode("utf-8"))
    except OSError as error:
        raise UsageError(f"cannot write '{file}': {error.strerror}") from error
