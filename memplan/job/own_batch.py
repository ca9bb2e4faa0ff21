"""The batch size that a target file gives its own ``batch``: the job's, where nobody chose another."""

import ast
import contextlib
import warnings
from dataclasses import replace
from pathlib import Path

from memplan.files.read import UnreadableError, read_bytes
from memplan.job.limits import MAX_COUNT
from memplan.job.spec import FileTarget, JobSpec


def with_own_batch(spec: JobSpec) -> JobSpec:
    """Return a job with the default of its file's ``batch(batch_size=…)``, where nobody chose a batch size.

    The file is read, not run: only a number that stands there counts.
    """
    target = spec.target
    if not isinstance(target, FileTarget) or spec.provenance.get("batch_size") != "default":
        return spec
    batch = _batch_function(target.path)
    size = _first_default(batch.args) if batch is not None else None
    if batch is None or size is None:
        return spec
    origin = f"{target.path.name}:{batch.lineno}"
    return replace(spec, batch_size=size, provenance={**spec.provenance, "batch_size": origin})


def _batch_function(path: Path) -> ast.FunctionDef | None:
    # What is wrong with a file is told by who runs it.
    with contextlib.suppress(UnreadableError, SyntaxError, ValueError, RecursionError, MemoryError):
        with warnings.catch_warnings(action="ignore"):
            body = ast.parse(read_bytes(path)).body
        functions = [each for each in body if isinstance(each, ast.FunctionDef) and each.name == "batch"]
        return functions[-1] if functions else None
    return None


def _first_default(arguments: ast.arguments) -> int | None:
    """The default of a function's first argument, where it is a number that a batch may have."""
    names = [*arguments.posonlyargs, *arguments.args]
    if not names or len(arguments.defaults) < len(names):
        return None
    match arguments.defaults[0]:
        case ast.Constant(value=int(size)) if not isinstance(size, bool) and 0 < size <= MAX_COUNT:
            return size
    return None
