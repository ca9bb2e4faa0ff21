"""What a repository has to plan: files that define a model, programs that train one, configurations. Nothing is run."""

import ast
import json
import os
from collections.abc import Iterator
from pathlib import Path

from memplan.errors import MemplanError
from memplan.files.read import read_bytes
from memplan.files.syntax import parse_source
from memplan.job.program import trains

BASES = ("Module", "LightningModule", "PreTrainedModel")
"""Classes that models are made of, by the last part of their name."""
MOST = 12
"""So many are looked at: each is a trace."""
_DEPTH = 3
"""Folders below the first one."""
_NOT_SOURCES = frozenset({"tests", "test", "venv", "env", "site-packages", "node_modules", "build", "dist", "docs"})


def candidates(folder: Path) -> list[str]:
    """Return what of a folder may be a job, as it would be typed: ``train.py``, ``models/net.py``, ``hf:config``.

    Folders inside are looked into, but hidden ones, tests and environments. Files with a ``model`` and programs that
    train come first, then classes of the folder itself, then configurations.
    """
    files = list(_files(folder))
    sources = [file for file in files if file.suffix == ".py" and not is_beside(file)]
    ready = [file for file in sources if defines_factory(file) or trains(file)]
    classes = [file for file in sources if file.parent == folder and file not in ready and defines_class(file)]
    found = [file.relative_to(folder).as_posix() for file in (*ready, *classes)]
    return found + [_hub(file.parent, folder) for file in files if file.name == "config.json" and _is_model(file)]


def is_beside(file: Path) -> bool:
    """Is a file by its name one of tests or of a package's set-up?"""
    return file.name.startswith(("test_", "conftest", "setup"))


def defines_factory(file: Path) -> bool:
    """Does a file have a function ``model``?"""
    return any(isinstance(node, ast.FunctionDef) and node.name == "model" for node in _body(file))


def defines_class(file: Path) -> bool:
    """Does a file define a class of modules?"""
    classes = [node for node in _body(file) if isinstance(node, ast.ClassDef)]
    return any(ast.unparse(base).split(".")[-1] in BASES for node in classes for base in node.bases)


def _body(file: Path) -> list[ast.stmt]:
    try:
        return parse_source(read_bytes(file)).body
    except (MemplanError, OSError, SyntaxError, ValueError):
        return []


def _files(folder: Path) -> Iterator[Path]:
    for place, inner, names in os.walk(folder):
        depth = len(Path(place).relative_to(folder).parts)
        kept = [name for name in sorted(inner) if name[0] not in "._" and name not in _NOT_SOURCES]
        inner[:] = kept if depth < _DEPTH else []
        yield from (Path(place, name) for name in sorted(names))


def _is_model(file: Path) -> bool:
    """Is it a configuration of transformers?"""
    try:
        content = json.loads(read_bytes(file))
    except (MemplanError, OSError, ValueError):
        return False
    return isinstance(content, dict) and isinstance(content.get("model_type"), str)


def _hub(place: Path, folder: Path) -> str:
    return f"hf:{place.relative_to(folder).as_posix()}"
