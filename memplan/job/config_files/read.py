"""Which framework a configuration file is for, what it says of a job, and what several say together."""

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, fields, replace
from pathlib import Path
from types import ModuleType
from typing import Any

from memplan.errors import UsageError
from memplan.job.config_files import accelerate, axolotl, code, deepspeed, training_arguments
from memplan.job.config_files.content import load
from memplan.job.config_files.source import FileSource
from memplan.job.setup_file import FORMAT, load_setup
from memplan.job.spec import JobSpec

_READERS: Mapping[str, ModuleType] = {
    "accelerate": accelerate,
    "axolotl": axolotl,
    "DeepSpeed": deepspeed,
    "TrainingArguments": training_arguments,
}
"""Framework → its reader. The first whose keys are there reads: later ones share keys with earlier ones."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FileSettings:
    """What a configuration file says of a job."""

    values: Mapping[str, Any]
    """Field of ``JobSpec`` → value."""
    provenance: Mapping[str, str]
    """Field → file and key."""
    notes: tuple[str, ...]
    """What was understood otherwise than it is written, or not at all."""
    lacks: Mapping[str, str]
    """Field → why it has to be typed beside the file."""


def read_config(path: Path) -> FileSettings:
    """Read a configuration file of DeepSpeed, accelerate, axolotl or transformers, emitted code, or a setup of memplan.

    Which framework's JSON or YAML it is, its keys tell.

    Raises:
        UsageError: It is none of them, or holds what cannot be; names every problem.
    """
    if path.suffix == ".py":
        return _settings(code.read(path), f"{path.name}:{code.NAME}")
    content = load(path)
    if content.get("format") == FORMAT:
        return _of_setup(path)
    reader = next((reader for reader in _READERS.values() if reader.KEYS & content.keys()), None)
    if reader is None:
        hint = f"it takes files of {', '.join(_READERS)} and setups of memplan"
        raise UsageError(f"{path} is no configuration that memplan knows", hint=hint)
    source = FileSource(path=path, content=content)
    reader.read(source)
    if source.problems:
        raise UsageError("; ".join(dict.fromkeys(source.problems)))
    return FileSettings(
        values=source.values, provenance=source.provenance, notes=tuple(source.notes), lacks=source.lacks
    )


def _of_setup(path: Path) -> FileSettings:
    job = load_setup(path).job
    names = [field.name for field in fields(JobSpec) if field.name not in ("target", "provenance")]
    return _settings({name: getattr(job, name) for name in names}, f"{path.name}:job")


def _settings(values: Mapping[str, Any], place: str) -> FileSettings:
    return FileSettings(values=values, provenance={name: f"{place}.{name}" for name in values}, notes=(), lacks={})


def merge(files: Iterable[FileSettings]) -> FileSettings:
    """Several files as one: later ones win, except where they leave open what an earlier one says."""
    merged = FileSettings(values={}, provenance={}, notes=(), lacks={})
    for file in files:
        known = merged.values.keys() & file.lacks.keys()
        values = _without(known, file.values)
        merged = FileSettings(
            values={**merged.values, **values},
            provenance={**merged.provenance, **_without(known, file.provenance)},
            notes=(*merged.notes, *file.notes),
            lacks={**_without(values, merged.lacks), **_without(known, file.lacks)},
        )
    return merged


def with_given(files: FileSettings, given: Mapping[str, Any]) -> tuple[dict[str, Any], list[str]]:
    """Fields of a job, where what is given wins over what files say; and what is left open and not given."""
    values = _agreeing({**files.values, **given})
    return values, [what for name, what in files.lacks.items() if name not in given]


def _agreeing(values: dict[str, Any]) -> dict[str, Any]:
    """With DeepSpeed's settings where DeepSpeed is what shards, for the stage that it has."""
    zero, parallel = values.get("zero"), values.get("parallel")
    if zero is None or parallel is None:
        return values
    stage = parallel.data.removeprefix("zero")
    return values | {"zero": replace(zero, stage=int(stage)) if stage.isdigit() else None}


def _without(names: Collection[str], values: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in values.items() if name not in names}
