"""The JSON Schema of project files, for editors: what stands in ``schema/project-1.0.json``.

``python -m memplan.report.project_schema`` prints it. A key that is an option of ``memplan estimate`` has the form that
setups have it in, but where an option is text; what text says (a file that is there, a GPU that is known) is for the
reader alone.
"""

import json
from collections.abc import Mapping
from importlib.resources import files
from typing import Any, get_args

from memplan.project.keys import ONCE, SHARED, job_keys, key_of
from memplan.project.records import FailOn

_NUMBER = r"([0-9]+(\.[0-9]*)?|\.[0-9]+)"
_SIZE = rf"\s*{_NUMBER}\s*([KkMmGgTt]?[Bb]|[KkMmGgTt]([Ii][Bb])?)?\s*"
_SHARE = rf"\s*{_NUMBER}\s*%\s*"
_TIME = rf"\s*{_NUMBER}\s*([Mm][Ss]|[Ss]|[Mm]([Ii][Nn])?|[Hh])?\s*"
_TEXT = {"type": "string", "minLength": 1}
_AMOUNT = {"type": "string", "pattern": f"^({_SIZE}|{_SHARE})$"}
_NAMES = {"type": "array", "items": _TEXT, "minItems": 1}
_KEYS: dict[str, dict[str, Any]] = {
    "gpus": _NAMES | {"description": "GPU profiles, as 'memplan gpus' lists them"},
    "baseline": _TEXT | {"description": "Where the accepted figures lie, relative to this file"},
    "profile-dirs": {"type": "array", "items": _TEXT, "description": "Folders of further GPU profiles"},
    "timeout": {
        "anyOf": [{"type": "string", "pattern": f"^(?=.*[1-9]){_TIME}$"}, {"type": "number", "exclusiveMinimum": 0}],
        "description": "Time that the target's code may take, as 10m; a number is seconds",
    },
    "alloc-conf": {"type": "string", "description": "PYTORCH_CUDA_ALLOC_CONF of the run"},
    "max-peak": {
        "type": "string",
        "pattern": f"^(?=.*[1-9]){_SIZE}$",
        "description": "Device peak at most, as 72GiB",
    },
    "min-headroom": _AMOUNT | {"description": "Usable memory left at least, as 5% of it or 2GiB"},
    "max-increase": _AMOUNT | {"description": "Growth over the baseline at most, as 2% or 1GiB"},
    "fail-on": {"enum": list(get_args(FailOn)), "description": "The verdict at which a job fails, or a worse one"},
    "informational": {"type": "boolean", "description": "Findings are told and never fail the gate"},
    "message": {"type": "string", "description": "Told with every failure"},
    "name": _TEXT | {"description": "What reports and baselines call the job"},
    "target": _TEXT | {"description": "model.py:factory, package.module:factory, hf:DIR or preset:NAME"},
    "config": {
        "anyOf": [_TEXT, {"type": "array", "items": _TEXT}],
        "description": "Configuration files of DeepSpeed, accelerate, axolotl or transformers, or setups",
    },
    "checkpoint": _TEXT | {"description": "none, full, or a plan file relative to this file"},
    "parallel": _TEXT,
    "lora": _TEXT,
    "input": {"type": "array", "items": _TEXT},
}
"""Key → its schema, where that is not the one of setups."""


def document() -> dict[str, Any]:
    """The schema as plain data."""
    setup = json.loads((files("memplan.report") / "schema" / "setup-1.0.json").read_text("utf-8"))
    options = {key_of(field): _in_toml(schema) for field, schema in setup["$defs"]["job"]["properties"].items()}
    keys = _KEYS | {
        key: {"description": f"As --{key} of 'memplan estimate'", **_KEYS.get(key, options[key])}
        for key in job_keys() & options.keys()
        if key != "target"
    }
    job = _object({key: keys[key] for key in sorted(job_keys())}, required=["name", "target"])
    jobs = {"type": "array", "items": {"$ref": "#/$defs/job"}, "minItems": 1}
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "memplan.toml 1.0, and [tool.memplan] of pyproject.toml",
        "description": "Keys of a job that stand at the top are defaults for all jobs.",
        "$defs": {"job": job},
        **_object({key: keys[key] for key in sorted([*ONCE, *SHARED])} | {"job": jobs}, required=["job"]),
    }


def _object(properties: Mapping[str, Any], required: list[str]) -> dict[str, Any]:
    return {"type": "object", "additionalProperties": False, "required": required, "properties": properties}


def _in_toml(schema: Mapping[str, Any]) -> dict[str, Any]:
    """The same without null, which TOML has not."""
    kept = [each for each in schema.get("anyOf", ()) if each != {"type": "null"}]
    if len(kept) == 1:
        return _in_toml(kept[0])
    found = dict(schema)
    if isinstance(kinds := found.get("type"), list):
        [found["type"]] = [kind for kind in kinds if kind != "null"]
    if "enum" in found:
        found["enum"] = [word for word in found["enum"] if word is not None]
    return found


if __name__ == "__main__":
    print(json.dumps(document(), indent=2))  # noqa: T201 - to be written where it is published
