"""What wins over a project file: the command line, and before the file the environment.

Both hold text and paths that begin at the working directory; every key is read as the file's own are.
"""

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

PREFIX = "MEMPLAN_"
"""Of variables: ``MEMPLAN_FAIL_ON`` is the key ``fail-on``."""
_SWITCHES = {"1": True, "true": True, "yes": True, "0": False, "false": False, "no": False}


@dataclass(frozen=True, slots=True, kw_only=True)
class Overrides:
    """What was typed, as it was typed; None or empty: nothing. Each counts for every job of the file."""

    gpus: Sequence[str] = ()
    """Instead of the jobs' own."""
    profile_dirs: Sequence[Path] = ()
    """Instead of the file's own."""
    baseline: Path | None = None
    """Where the accepted figures lie."""
    max_peak: str | None = None
    """``72GiB``."""
    min_headroom: str | None = None
    """``5%`` or ``2GiB``."""
    max_increase: str | None = None
    """``2%`` or ``1GiB``."""
    max_fragmentation: str | None = None
    """``10%``."""
    fail_on: str | None = None
    """``oom``, ``tight`` or ``unknown``."""
    informational: bool | None = None
    """Can nothing fail?"""
    message: str | None = None
    """Told with every failure."""
    timeout: str | float | None = None
    """``10m``, or seconds."""
    alloc_conf: str | None = None
    """``PYTORCH_CUDA_ALLOC_CONF``."""
    jobs: Sequence[str] = ()
    """Names of the jobs that are wanted; empty: all."""


_OPTIONS = {"gpus": "--gpu", "profile_dirs": "--profile-dir"}
"""Repeatable options are named after one of their values."""


def typed(overrides: Overrides) -> dict[str, tuple[str, Any]]:
    """Key of the file → the option that sets it, and its value as the file would hold it."""
    names = [field.name for field in fields(Overrides) if field.name != "jobs"]
    values = {name: getattr(overrides, name) for name in names}
    return {
        name.replace("_", "-"): (_OPTIONS.get(name, "--" + name.replace("_", "-")), _plain(value))
        for name, value in values.items()
        if value not in (None, (), [])
    }


def from_environment(keys: Sequence[str], environment: Mapping[str, str]) -> dict[str, tuple[str, Any]]:
    """Key of the file → the variable that sets it, and its value as the file would hold it; an empty one is none."""
    names = {key: PREFIX + key.replace("-", "_").upper() for key in keys}
    found = {key: (name, environment[name]) for key, name in names.items() if environment.get(name)}
    return {key: (name, _value(key, text)) for key, (name, text) in found.items()}


def _value(key: str, text: str) -> Any:
    match key:
        case "gpus":
            return [name.strip() for name in text.split(",")]
        case "profile-dirs":
            return text.split(os.pathsep)
        case "informational":
            # Another word is left for the key's reader to refuse.
            return _SWITCHES.get(text.lower(), text)
        case _:
            return text


def _plain(value: Any) -> Any:
    match value:
        case Path():
            return str(value)
        case list() | tuple():
            return [str(each) for each in value]
        case _:
            return value
