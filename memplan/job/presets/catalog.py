"""The catalog: one TOML file per family under ``facts/``, read without torch or transformers."""

import difflib
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from typing import Any, Literal, cast

from memplan.errors import UsageError
from memplan.job.huggingface.tasks import Task


@dataclass(frozen=True, slots=True, kw_only=True)
class Preset:
    """One architecture as published."""

    name: str
    """What users type after ``preset:``."""
    family: str
    """Heading it is listed under, e.g. ``llama``."""
    library: Literal["transformers", "diffusers"]
    """Whose model code it builds on."""
    task: Task
    """What a step trains it for."""
    model_class: str
    """Name of the class in the library, e.g. ``LlamaForCausalLM``."""
    config_class: str | None
    """Name of the configuration's class; None for diffusers, whose models take their configuration as keywords."""
    config: Mapping[str, Any]
    """The published configuration where it differs from the class's default or the default may change."""
    seq_len: int | None
    """Tokens per sample where the user gives none: the published context, at most 2048. None for images."""
    max_seq_len: int | None
    """Longest sequence that learned positions allow; None where positions are computed."""
    dtype: str
    """Type that transformers loads the published weights in: the configuration's ``dtype``, else that of the file."""
    parameters: int
    """Published parameter count, tied weights counted once."""
    source: str
    """Page that publishes the figures."""


@cache
def list_presets() -> tuple[Preset, ...]:
    """Every preset, by family and, within one, in the order of its file."""
    folder = files("memplan.job.presets") / "facts"
    texts = sorted((file.name, file.read_text("utf-8")) for file in folder.iterdir() if file.name.endswith(".toml"))
    return tuple(preset for _name, text in texts for preset in _family(tomllib.loads(text)))


def find_preset(name: str) -> Preset:
    """Look up a preset.

    Raises:
        UsageError: There is none of that name; the hint offers the nearest ones.
    """
    by_name = {preset.name: preset for preset in list_presets()}
    if name.lower() in by_name:
        return by_name[name.lower()]
    nearest = difflib.get_close_matches(name.lower(), by_name, n=3, cutoff=0.5)
    hint = "did you mean " + " or ".join(nearest) + "? " if nearest else ""
    raise UsageError(f"there is no preset '{name}'", hint=f"{hint}'memplan presets' lists them")


def _family(facts: Mapping[str, Any]) -> list[Preset]:
    shared = {key: value for key, value in facts.items() if key != "presets"}
    return [_preset(name, {**shared, **own}, shared.get("config", {})) for name, own in facts["presets"].items()]


def _preset(name: str, facts: Mapping[str, Any], shared_config: Mapping[str, Any]) -> Preset:
    # TOML has no null: keys whose published value is null stand in `unset`.
    unset = dict.fromkeys(facts.get("unset", ()))
    return Preset(
        name=name,
        family=facts["family"],
        library=facts["library"],
        task=cast("Task", facts["task"]),
        model_class=facts["model_class"],
        config_class=facts.get("config_class"),
        config={**shared_config, **facts["config"], **unset},
        seq_len=facts.get("seq_len"),
        max_seq_len=facts.get("max_seq_len"),
        dtype=facts.get("dtype", "float32"),
        parameters=facts["parameters"],
        source=facts["source"],
    )
