"""Targets become callables. Runs in the child process, because it imports the user's code."""

import dataclasses
import importlib
import importlib.util
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import ModuleType
from typing import Any

from memplan.errors import UsageError
from memplan.job.candidates import model_builder, model_name
from memplan.job.inputs import batch_of
from memplan.job.loss_items import loss_items
from memplan.job.places import file_of, place
from memplan.job.signatures import EXPECTED, check_takes, uniform_batch
from memplan.job.source import ModelSource
from memplan.job.spec import FileTarget, HubTarget, JobSpec, ModuleTarget, PresetTarget, ScriptTarget
from memplan.job.usercode import display, guarded, user_code

_BATCH_EXAMPLE = """add to the file, for example (or give --input NAME=dtype[dims]):
    import torch
    def batch(batch_size):
        return torch.randn(batch_size, 3, 224, 224)"""


def load_source(spec: JobSpec) -> ModelSource:
    """Load a target: import its code and pick the callables of a step. Nothing is built.

    Args:
        spec: The job; its target, inputs and sequence length are read.

    Returns:
        The callables, guarded: what they raise is an ``EstimateError`` with the user's own line. ``provenance`` says
        for each, and for ``batch_size`` and ``seq_len``, where it came from.

    Raises:
        UsageError: The target names nothing that exists, or its functions do not fit (exit 2).
        EstimateError: The user's code raised while it was imported (exit 3).
    """
    source = _unfed_source(spec)
    if not spec.inputs:
        return source
    if spec.seq_len is not None and not any("S" in given.dims for given in spec.inputs):
        raise UsageError("a sequence length was given, but no --input has a dimension S", hint="leave out --seq-len")
    provenance = {**source.provenance, "batch": "--input"}
    return dataclasses.replace(source, batch=batch_of(spec.inputs), provenance=provenance)


def _unfed_source(spec: JobSpec) -> ModelSource:
    """The target's own source; ``--input`` is not yet applied."""
    match spec.target:
        case FileTarget(path=path, factory=factory):
            return _module_source(_import_file(path), factory, spec)
        case ModuleTarget(module=module, factory=factory):
            return _module_source(_import_module(module), factory, spec)
        case HubTarget(location=location):
            from memplan.job.huggingface import hub_source

            return hub_source(location, spec=spec)
        case PresetTarget(name=name):
            from memplan.job.presets import preset_source

            return preset_source(name, spec=spec)
        case ScriptTarget(name=name):
            raise UsageError(
                f"{name} is a program, of which this command wants the model alone", hint="write a target file"
            )


def _module_source(module: ModuleType, factory: str | None, spec: JobSpec) -> ModelSource:
    """Read the contract of a target file (docs: target files) out of an imported module."""
    name = model_name(module, factory)
    provenance = {"model": place(module, name)}
    provenance.update({field: place(module, field) for field in EXPECTED if getattr(module, field, None) is not None})
    batch, default_seq_len = _batch(module, spec)
    if spec.inputs:
        provenance["batch"] = "--input"
    if default_seq_len is not None and spec.seq_len is None:
        provenance["seq_len"] = provenance["batch"]
    loss = _function(module, "loss", 2)
    return ModelSource(
        model=model_builder(module, name),
        batch=batch,
        loss=loss,
        loss_items=loss_items(loss) if loss else (),
        optimizer=_function(module, "optimizer", 1),
        train_step=_function(module, "train_step", 3),
        parallelize=_function(module, "parallelize", 2),
        generate=_function(module, "generate", 2),
        default_seq_len=default_seq_len,
        provenance=provenance,
    )


def _batch(module: ModuleType, spec: JobSpec) -> tuple[Callable[[int, int | None], Any] | None, int | None]:
    """The module's ``batch`` in its uniform form, and its default sequence length."""
    if spec.inputs:
        return None, None
    function = _callable(module, "batch")
    if function is None:
        file = file_of(module)
        raise UsageError(f"{file} has no batch(), so the model's input is unknown", where=file, hint=_BATCH_EXAMPLE)
    uniform, default = uniform_batch(function, where=place(module, "batch"), seq_len=spec.seq_len)
    return guarded(uniform, "batch()"), default


def _function(module: ModuleType, name: str, count: int) -> Callable[..., Any] | None:
    """A function of the contract, checked to take ``count`` arguments and guarded; None if the module has none."""
    function = _callable(module, name)
    if function is None:
        return None
    check_takes(function, name, count, where=place(module, name))
    return guarded(function, f"{name}()")


def _callable(module: ModuleType, name: str) -> Callable[..., Any] | None:
    function = getattr(module, name, None)
    if function is not None and not callable(function):
        kind = type(function).__name__
        what = f"'{name}' in {file_of(module)} must be a function {EXPECTED[name]}, but is of type {kind}"
        raise UsageError(what, where=place(module, name))
    return function


def _import_file(path: Path) -> ModuleType:
    """Import a file under its own name, its folder on ``sys.path``: siblings, dataclasses and pickles work."""
    path = path.resolve()
    _put_on_path(path.parent)
    # A file that is called like a module already loaded (types.py) must not take that one's place.
    namesake = sys.modules.get(path.stem)
    is_free = namesake is None or getattr(namesake, "__file__", None) == str(path)
    name = path.stem if is_free else f"{path.stem} (target)"
    found = importlib.util.spec_from_file_location(name, path)
    if found is None or found.loader is None:
        raise UsageError(f"'{display(path)}' is not a Python file")
    module = importlib.util.module_from_spec(found)
    sys.modules[name] = module
    try:
        with _script_arguments(path), user_code(display(path)):
            found.loader.exec_module(module)
    except BaseException:
        del sys.modules[name]
        raise
    return module


def _import_module(name: str) -> ModuleType:
    """Import by name, the current folder first, as ``python -m`` does.

    Raises:
        UsageError: The module or a package above it does not exist.
    """
    _put_on_path(Path.cwd())
    try:
        with _script_arguments(Path(name)), user_code(name):
            return importlib.import_module(name)
    except Exception as error:
        cause = error.__cause__
        if isinstance(cause, ModuleNotFoundError) and cause.name and f"{name}.".startswith(f"{cause.name}."):
            hint = f"run memplan in the folder that holds it ({Path.cwd()} does not), or install it"
            raise UsageError(f"there is no module '{cause.name}'", hint=hint) from error
        raise


def _put_on_path(folder: Path) -> None:
    if str(folder) not in sys.path:
        sys.path.insert(0, str(folder))


@contextmanager
def _script_arguments(path: Path) -> Iterator[None]:
    """Let user code that reads ``sys.argv`` while imported see a script without arguments, not memplan's own."""
    before, sys.argv = sys.argv, [str(path)]
    try:
        yield
    finally:
        sys.argv = before
