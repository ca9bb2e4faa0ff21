"""``torch.compile`` during a trace: what it compiles runs as it is written, or as Inductor would compile it."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import torch

from memplan.job.spec import Compile
from memplan.trace.recorder import Recorder
from memplan.trace.replacements import Attribute, attributes

if TYPE_CHECKING:
    from memplan.trace.inductor.region import Regions

NOTE = "torch.compile: compiled code is traced as eager code"

UNUSED = "torch.compile: nothing was compiled, since the step never calls what would be (the model as a whole)"


class Compiling:
    """What ``torch.compile`` means in a trace.

    Args:
        choice: ``eager`` or ``inductor``.
    """

    def __init__(self, choice: Compile) -> None:
        self.assumptions: dict[str, None] = {}
        """What was taken for granted."""
        self._choice = choice
        self._left_out: dict[str, None] = {}
        self._regions: Regions | None = None
        self._asked = False

    def begin(self, recorder: Recorder) -> None:
        """Say who records. Inductor is imported here, and only where it is asked for."""
        if self._choice == "inductor":
            from memplan.trace.inductor import regions

            self._regions = regions(recorder, self.assume, self.leave_out)

    def assume(self, sentence: str) -> None:
        """Note what was taken for granted."""
        self.assumptions[sentence] = None

    def leave_out(self, sentence: str) -> None:
        """Note what the figures leave out."""
        self._left_out[sentence] = None

    def not_modelled(self) -> tuple[str, ...]:
        """What the figures leave out: empty until something is compiled."""
        idle = self._regions is not None and not self._regions.called
        return (*self._left_out, *([UNUSED] if idle else []))

    def function(self, function: Callable[..., Any]) -> Callable[..., Any]:
        """What ``torch.compile(function)`` returns."""
        self._asked = True
        if self._regions is None:
            self.leave_out(NOTE)
            return function
        return self._regions.region(function)

    def module(self, module: torch.nn.Module) -> None:
        """What ``module.compile()`` does."""
        self._asked = True
        if self._regions is None:
            self.leave_out(NOTE)
        else:
            # As ``Module.compile`` does; the module keeps its parameters' names, unlike in torch's ``OptimizedModule``.
            module._compiled_call_impl = self._regions.region(module._call_impl)

    def whole(self, model: torch.nn.Module) -> None:
        """Compile a model of whose target nothing asked for it."""
        if self._regions is not None and not self._asked:
            self.module(model)


@contextmanager
def compiling(choice: Compile) -> Iterator[Compiling]:
    """Install the meaning of ``torch.compile`` and ``Module.compile`` while the context lasts."""
    meaning = Compiling(choice)

    def compile_(model: Callable[..., Any] | None = None, **options: Any) -> Any:
        if model is None:
            # Without a function it is a decorator with options.
            return lambda function: compile_(function, **options)
        if not isinstance(model, torch.nn.Module):
            return meaning.function(model)
        meaning.module(model)
        return model

    def compile_module(self: torch.nn.Module, *_: Any, **__: Any) -> None:
        meaning.module(self)

    with attributes(
        (Attribute(torch, "compile", compile_), Attribute(torch.nn.Module, "compile", compile_module)),
    ):
        yield meaning
