"""Targets become callables. Runs in the child process, because it imports the user's code."""

import dataclasses
from collections.abc import Callable
from types import ModuleType
from typing import Any

from memplan.errors import UsageError
from memplan.job.call import Name
from memplan.job.candidates import model_builder, model_call
from memplan.job.imports import import_file, import_module
from memplan.job.inputs import batch_of
from memplan.job.loss_items import loss_items
from memplan.job.places import file_of, place
from memplan.job.signatures import EXPECTED, check_takes, uniform_batch
from memplan.job.source import ModelSource
from memplan.job.spec import FileTarget, HubTarget, JobSpec, ModuleTarget, PresetTarget, ScriptTarget
from memplan.job.usercode import LOSS, guarded

LOSSES = ("cross-entropy", "mse", "sum")
"""What ``--loss`` takes beside a function."""


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
    if spec.loss is not None:
        source = _with_loss(source, spec.loss)
    if not spec.inputs:
        return source
    if spec.seq_len is not None and not any("S" in given.dims for given in spec.inputs):
        raise UsageError("a sequence length was given, but no --input has a dimension S", hint="leave out --seq-len")
    provenance = {**source.provenance, "batch": "--input"}
    return dataclasses.replace(source, batch=batch_of(spec.inputs), provenance=provenance)


def _with_loss(source: ModelSource, name: str) -> ModelSource:
    """``--loss`` in place of the target's own; the kinds that memplan knows are fitted to the output later."""
    if source.train_step is not None:
        raise UsageError("--loss would change nothing: the target has a train_step", hint="leave out --loss")
    if name in LOSSES:
        return dataclasses.replace(source, loss=None, loss_items=())
    module_name, colon, function_name = name.partition(":")
    if not colon or not function_name:
        raise UsageError(
            f"there is no loss '{name}'", where="--loss", hint=f"one of {', '.join(LOSSES)}, or module:function"
        )
    module = import_module(module_name)
    loss = getattr(module, function_name, None)
    if loss is None:
        raise UsageError(f"{file_of(module)} has no '{function_name}'", where="--loss")
    check_takes(loss, "loss", 2, where=place(module, function_name))
    provenance = {**source.provenance, "loss": place(module, function_name)}
    return dataclasses.replace(source, loss=guarded(loss, LOSS), loss_items=loss_items(loss), provenance=provenance)


def _unfed_source(spec: JobSpec) -> ModelSource:
    """The target's own source; ``--input`` is not yet applied."""
    match spec.target:
        case FileTarget(path=path, factory=factory):
            return _module_source(import_file(path), factory, spec)
        case ModuleTarget(module=module, factory=factory):
            return _module_source(import_module(module), factory, spec)
        case HubTarget(location=location):
            return _hub_source(location, spec)
        case PresetTarget(name=name):
            from memplan.job.presets import preset_source

            return preset_source(name, spec=spec)
        case ScriptTarget(name=name):
            raise UsageError(
                f"{name} is a program, of which this command wants the model alone", hint="write a target file"
            )


def _hub_source(location: str, spec: JobSpec) -> ModelSource:
    """A configuration on this disk, or on the hub; without the network a preset stands for what is well known."""
    from memplan.job.huggingface.hub import hub_source, is_at_hand
    from memplan.job.presets import preset_source
    from memplan.job.presets.hub_names import preset_of

    preset = None if spec.allow_network or is_at_hand(location) else preset_of(location)
    if preset is None:
        return hub_source(location, spec=spec)
    source = preset_source(preset.name, spec=spec)
    told = f"hf:{location} is not on this disk: {source.provenance['model']}"
    return dataclasses.replace(source, provenance={**source.provenance, "model": told})


def _module_source(module: ModuleType, factory: str | None, spec: JobSpec) -> ModelSource:
    """Read the contract of a target file (docs: target files) out of an imported module."""
    call = model_call(module, factory)
    provenance = {"model": place(module, call.path[0])}
    provenance.update({field: place(module, field) for field in EXPECTED if getattr(module, field, None) is not None})
    batch, default_seq_len = _batch(module, spec)
    if spec.inputs:
        provenance["batch"] = "--input"
    if default_seq_len is not None and spec.seq_len is None:
        provenance["seq_len"] = provenance["batch"]
    loss = _function(module, "loss", 2)
    return ModelSource(
        model=model_builder(module, call),
        batch=batch,
        loss=loss,
        loss_items=loss_items(loss) if loss else (),
        optimizer=_function(module, "optimizer", 1),
        train_step=_function(module, "train_step", 3),
        parallelize=_function(module, "parallelize", 2),
        generate=_function(module, "generate", 2),
        default_seq_len=default_seq_len,
        arguments={name: value for name, value in call.keywords.items() if not isinstance(value, Name)},
        provenance=provenance,
    )


def _batch(module: ModuleType, spec: JobSpec) -> tuple[Callable[[int, int | None], Any] | None, int | None]:
    """The module's ``batch`` in its uniform form, and its default sequence length."""
    if spec.inputs:
        return None, None
    function = _callable(module, "batch")
    if function is None:
        return None, None
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
