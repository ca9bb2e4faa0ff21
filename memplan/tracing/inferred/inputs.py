"""A model's inputs, found by trying: what its first layers take, taken further as long as the model runs further."""

import inspect
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import chain
from typing import Any

import torch
from torch import nn

from memplan.errors import UsageError
from memplan.job.inputs import batch_of
from memplan.job.spec import InputSpec
from memplan.tracing.inferred.candidates import Facts, inputs_by_name, inputs_for, inputs_of_any_kind, is_label
from memplan.tracing.inferred.trial import LAYERS, MOST_CALLS, Attempted, TooLongError, trial

BATCH = 2
"""Samples of a trial: batch norm in training wants more than one."""
MOST_TRIALS = 400
"""Forward passes after which a model's inputs count as not to be found. Chosen; most end at their first layer."""
_FORM = "give each with --input, for example {example}, or add batch(batch_size) to the file"
_OWN_STEP = (
    "add batch(batch_size) to the file, which returns what training_step takes, and unless it is a LightningModule "
    "train_step(model, optimizer, batch), too; or name the program that trains it: memplan estimate train.py"
)
"""What to do where only a trainer knows how to call a model (Lightning's ``LightningModule``)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FoundInputs:
    """Inputs with which a model runs."""

    specs: tuple[InputSpec, ...]
    """As ``--input`` would say them."""
    length: int | None
    """What S is; None where no input has it."""
    output: Any
    """What the model returned of two samples."""
    layers: Mapping[str, str]
    """Input → the first layer that it reaches."""


def find_inputs(model: nn.Module, facts: Facts, *, length_is_given: bool) -> FoundInputs:
    """Try inputs until a model runs.

    What the forward of the model, on fake tensors, changes is changed.

    Raises:
        UsageError: None was found; the nearest are named.
    """
    return _Search(model, facts, length_is_given=length_is_given).run()


def with_labels(model: nn.Module, found: FoundInputs) -> Iterator[FoundInputs]:
    """The same with each optional input that a model is taught by, of the shape that its tokens have."""
    given = {spec.name for spec in found.specs}
    for name in inspect.signature(model.forward).parameters:
        if name in given or not is_label(name):
            continue
        dims = next((spec.dims for spec in found.specs if spec.dtype == "int64"), ("B",))
        specs = (*found.specs, InputSpec(name=name, dtype="int64", dims=dims))
        outcome = _tried(model, specs, found.length, MOST_CALLS)
        if outcome.error is None:
            yield FoundInputs(specs=specs, length=found.length, output=outcome.output, layers=found.layers)


def needed_inputs(model: nn.Module) -> list[inspect.Parameter]:
    """Parameters of ``forward`` that have no default.

    Raises:
        UsageError: It takes any number.
    """
    parameters = list(inspect.signature(model.forward).parameters.values())
    stars = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)
    needed = [each for each in parameters if each.default is each.empty and each.kind not in stars]
    if not needed:
        optional = [each for each in parameters if each.kind not in stars][:1]
        if not optional:
            raise _takes_anything(model)
        return optional
    return needed


class _Search:
    def __init__(self, model: nn.Module, facts: Facts, *, length_is_given: bool) -> None:
        self._model, self._facts = model, facts
        self._length_is_given = length_is_given
        self._most_calls = MOST_CALLS * (50 if length_is_given else 1)
        self._parameters = {each.name: each for each in needed_inputs(model)}
        self._first = next((layer for layer in model.modules() if isinstance(layer, LAYERS)), None)
        self._reached: dict[str, nn.Module] = {}
        self._tried: dict[tuple[Any, ...], Attempted] = {}

    def run(self) -> FoundInputs:
        current = {name: next(self._options(name)) for name in self._parameters}
        furthest: Attempted | None = None
        lengths = list(self._facts.lengths)
        while lengths:
            length = lengths.pop(0)
            current, outcome = self._climb(current, length)
            if outcome.error is None:
                return self._found(current, length, outcome)
            is_too_long = isinstance(outcome.error, TooLongError)
            if isinstance(outcome.error, TooLongError) and outcome.error.limit and not self._length_is_given:
                lengths = [outcome.error.limit, *(each for each in lengths if each < outcome.error.limit)]
            furthest = outcome if furthest is None or not is_too_long else furthest
            if len(self._tried) > MOST_TRIALS:
                break
        if self._most_calls == MOST_CALLS and furthest is not None and isinstance(furthest.error, TooLongError):
            # It is not the sequence that makes it so many.
            self._most_calls, self._tried = 50 * MOST_CALLS, {}
            return self.run()
        raise self._nothing(current, furthest)

    def _climb(self, current: dict[str, InputSpec], length: int) -> tuple[dict[str, InputSpec], Attempted]:
        """Change one input after the other to what lets the model run furthest."""
        best = self._try(current, length)
        goes_on = best.error is not None
        while goes_on and len(self._tried) <= MOST_TRIALS and not isinstance(best.error, TooLongError):
            goes_on = False
            for name in self._parameters:
                for option in list(self._options(name)):
                    changed = current | {name: option}
                    outcome = self._try(changed, length)
                    if outcome.error is None:
                        return changed, outcome
                    if outcome.calls > best.calls:
                        current, best, goes_on = changed, outcome, True
        return current, best

    def _try(self, current: Mapping[str, InputSpec], length: int) -> Attempted:
        specs = tuple(current.values())
        key = (*specs, length if any("S" in spec.dims for spec in specs) else None)
        if key not in self._tried:
            outcome = _tried(self._model, specs, length, self._most_calls)
            if outcome.error is None and not _keeps_batch(outcome.output, length):
                outcome.error = ValueError("the output has another batch size than the input")
            # Only its place is wanted, not what its frames hold.
            outcome.error = outcome.error and outcome.error.with_traceback(None)
            self._tried[key] = outcome
            self._reached |= {name: seen for name, seen in outcome.reached.items() if name not in self._reached}
        return self._tried[key]

    def _options(self, name: str) -> Iterator[InputSpec]:
        parameter = self._parameters[name]
        layer = self._reached.get(name)
        guess = self._first if len(self._parameters) == 1 or name == next(iter(self._parameters)) else None
        every = chain(
            inputs_for(name, layer, self._facts),
            inputs_by_name(name, parameter.annotation),
            inputs_for(name, guess, self._facts),
            inputs_of_any_kind(name, self._facts),
        )
        return iter(dict.fromkeys(every))

    def _found(self, current: Mapping[str, InputSpec], length: int, outcome: Attempted) -> FoundInputs:
        names = {id(module): name for name, module in self._model.named_modules()}
        specs = tuple(current.values())
        return FoundInputs(
            specs=specs,
            length=length if any("S" in spec.dims for spec in specs) else None,
            output=outcome.output,
            layers={name: names.get(id(layer), "") for name, layer in outcome.reached.items()},
        )

    def _nothing(self, current: Mapping[str, InputSpec], outcome: Attempted | None) -> UsageError:
        nearest = " ".join(f"--input {written(spec)}" for spec in current.values())
        error = outcome.error if outcome is not None else None
        reason = f"{type(error).__name__}: {str(error).strip().splitlines()[0][:200] if str(error).strip() else ''}"
        what = f"the target has no batch(), and its inputs could not be worked out: with {nearest} it raises {reason}"
        return UsageError(what, hint=_hint(nearest.removeprefix("--input ")))


def written(spec: InputSpec) -> str:
    """An input as ``--input`` takes it."""
    return f"{spec.name}={spec.dtype}[{','.join(map(str, spec.dims))}]"


def _takes_anything(model: nn.Module) -> UsageError:
    name = type(model).__name__
    if hasattr(model, "training_step"):
        return UsageError(f"nothing says what {name} is called with: it has no batch(), and no forward of its own",
                          hint=_OWN_STEP)  # fmt: skip
    if type(model).forward is nn.Module.forward:
        return UsageError(f"{name} has no forward", hint="write one, or add batch and train_step to the file")
    return UsageError(f"{name} has no batch(), and its forward takes anything", hint=_hint("x=float32[B,512]"))


def _hint(example: str) -> str:
    return _FORM.format(example=f"--input {example}")


def _tried(model: nn.Module, specs: tuple[InputSpec, ...], length: int | None, most_calls: int) -> Attempted:
    return trial(model, batch_of(specs)(BATCH, length), most_calls=most_calls)


def _keeps_batch(output: Any, length: int) -> bool:
    """Has what a model returns as many samples as it got? ``view(-1, 320)`` takes pictures of any size apart."""
    parts = output if isinstance(output, list | tuple) else output.values() if isinstance(output, Mapping) else [output]
    shapes = [
        part.shape for part in parts if isinstance(part, torch.Tensor) and part.is_floating_point() and part.dim()
    ]
    return not shapes or any(shape[0] in (BATCH, length, BATCH * length) for shape in shapes)
