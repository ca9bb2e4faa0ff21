"""What memplan emitted as Python: the literal in it that says what the file carries. Nothing of the file runs."""

import ast
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from memplan.errors import UsageError
from memplan.files.documents import check_plain
from memplan.files.read import SETTINGS, UnreadableError, read_text
from memplan.job.options import OPTIONS
from memplan.job.setup_file import JOB

NAME = "MEMPLAN_SETUP"
"""The variable."""
_CARRIED = replace(JOB, called=NAME)


def read(path: Path) -> Mapping[str, Any]:
    """Read what an emitted file of Python carries, by field of ``JobSpec``; a plan lies beside the file.

    Raises:
        UsageError: It cannot be read, holds no such literal, or one that is not valid.
    """
    try:
        content = _literal(read_text(path, SETTINGS))
        check_plain(content)
    except (UnreadableError, SyntaxError, ValueError, RecursionError, MemoryError) as error:
        raise UsageError(f"{path} cannot be read: {error}") from error
    if not isinstance(content, dict) or not content.keys() <= {*OPTIONS, "zero"}:
        raise UsageError(f"{path} is no file that memplan emit wrote", hint=f"such a file defines {NAME}")
    job = _CARRIED.read({"target": {"preset": "none"}, **content}, str(path))
    values = {name: getattr(job, name) for name in content}
    if values.get("checkpoint", "none") not in ("none", "full"):
        values["checkpoint"] = str(path.parent / values["checkpoint"])
    return values


def _literal(text: str) -> object:
    """What the variable is; None where there is none."""
    for node in ast.parse(text).body:
        match node:
            case ast.Assign(targets=[ast.Name(id=name)], value=value) if name == NAME:
                return ast.literal_eval(value)
    return None
