"""``torch.compile`` in a real run: left out with ``eager``, as in a trace; with a compiler what it always is."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch

from memplan.errors import EstimateError
from memplan.job.spec import Compile
from memplan.seam.compiler import DEFINED_IN
from memplan.seam.replace import Replacement, replaced
from memplan.tracing.compiled import twin_of

LEFT_OUT = "the target's torch.compile was left out of the run, as of the prediction; --compile inductor has it in both"
COMPILING = "the first steps hold what compiling itself takes, which the prediction leaves out"

_NO_COMPILER = ("C++ compiler", "C compiler", "CppCompile")
"""Words by which Inductor and Triton say that they want one (torch/_inductor/exc.py, triton/runtime/build.py)."""


class RealCompiling:
    """What ``torch.compile`` means in a run."""

    def __init__(self, choice: Compile) -> None:
        self._choice, self._is_real = choice, choice != "eager"
        self._compile = torch.compile
        self._asked = False

    def function(self, function: Callable[..., Any], options: dict[str, Any]) -> Callable[..., Any]:
        """What ``torch.compile(function, **options)`` returns."""
        self._asked = True
        if self._choice == "aot_eager":
            options = {**options, "backend": self._choice}
        return self._compile(function, **options) if self._is_real else function

    def module(self, module: torch.nn.Module, options: dict[str, Any]) -> torch.nn.Module:
        """What ``torch.compile(module, **options)`` returns; as in a trace its parts keep their names."""
        self._asked = True
        return twin_of(module, lambda call: self.function(_framed(call), options)) if self._is_real else module

    def whole(self, model: torch.nn.Module) -> None:
        """Compile a model of whose target nothing asked for it, as traces do."""
        if self._is_real and not self._asked:
            # As ``Module.compile`` does, which leaves torch's own modules as they are.
            model._compiled_call_impl = self.function(_framed(model._call_impl), {})  # noqa: SLF001

    def notes(self) -> tuple[str, ...]:
        """What a reader of the figures must know of it, each a sentence."""
        if self._is_real:
            return (COMPILING,)
        return (LEFT_OUT,) if self._asked else ()


def _framed(function: Callable[..., Any]) -> Callable[..., Any]:
    """The same in a frame outside of torch, as torch's own wrapper adds one: Dynamo skips what lies within torch."""

    def call(*args: Any, **kwargs: Any) -> Any:
        return function(*args, **kwargs)

    return call


@contextmanager
def compiling(choice: Compile) -> Iterator[RealCompiling]:
    """Install the meaning of ``torch.compile``, and with it of ``Module.compile``, while the context lasts."""
    meaning = RealCompiling(choice)

    def compile_(model: Callable[..., Any] | None = None, **options: Any) -> Any:
        if model is None:
            return lambda function: compile_(function, **options)
        if isinstance(model, torch.nn.Module):
            return meaning.module(model, options)
        return meaning.function(model, options)

    # ``Module.compile`` calls ``torch.compile``.
    with replaced((Replacement("torch.compile", compile_),)):
        yield meaning


def compiler_failure(error: BaseException) -> EstimateError | None:
    """An error that says so, if a step failed because something could not be compiled; else None."""
    found = [cause for cause in causes(error) if type(cause).__module__.startswith(DEFINED_IN)]
    if not found:
        return None
    message = str(found[-1])
    hint = "--compile eager needs no compiler"
    if any(word in message for word in _NO_COMPILER):
        hint = f"install a C++ compiler (g++, or name one in CXX); {hint}"
    # Torch 2.6 heads the message with "backend='inductor' raised:".
    lines = (line for line in message.splitlines() if line.strip() and not line.rstrip().endswith("raised:"))
    first = next(lines, type(found[-1]).__name__)
    return EstimateError(f"torch.compile cannot compile this step: {first}", hint=hint)


def causes(error: BaseException | None) -> Iterator[BaseException]:
    """An error and what it was raised from, back to the first."""
    while error is not None:
        yield error
        error = error.__cause__
