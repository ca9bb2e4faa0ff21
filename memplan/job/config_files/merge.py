"""Several configuration files of one job, and what is given beside them."""

from collections.abc import Collection, Iterable, Mapping
from dataclasses import replace
from typing import Any

from memplan.job.config_files.read import FileSettings


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
