"""``torch.compile`` during a trace: what it compiles runs as it is written, or as Inductor would compile it."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import wraps
from typing import TYPE_CHECKING, Any

import torch

from memplan.job.spec import Compile
from memplan.seam.replace import Replacement, replaced
from memplan.tracing.recorder import Recorder

if TYPE_CHECKING:
    from memplan.tracing.inductor.region import Regions

NOTE = "torch.compile: compiled code is traced as eager code"

UNUSED = "torch.compile: nothing was compiled, since the step never calls what would be (the model as a whole)"


class Compiling:
    """What ``torch.compile`` means in a trace.

    Args:
        choice: ``eager``, ``aot_eager`` or ``inductor``.
    """

    def __init__(self, choice: Compile) -> None:
        self.assumptions: dict[str, None] = {}
        """What was taken for granted."""
        self._choice = choice
        self._left_out: dict[str, None] = {}
        self._regions: Regions | None = None
        self._asked = False

    def begin(self, recorder: Recorder) -> None:
        """Say who records. A compiler is imported here, and only where it is asked for."""
        if self._choice != "eager":
            from memplan.tracing.inductor import regions

            self._regions = regions(self._choice, recorder, self.assume, self.leave_out)

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
        if self._regions is not None:
            return self._regions.region(function)

        @wraps(function)
        def call(*args: Any, **kwargs: Any) -> Any:
            # Libraries decorate what few programs call (bitsandbytes' own kernels for other devices).
            self.leave_out(NOTE)
            return function(*args, **kwargs)

        return call

    def module(self, module: torch.nn.Module) -> None:
        """What ``module.compile()`` does."""
        self._asked = True
        if self._regions is None:
            self.leave_out(NOTE)
        else:
            # As ``Module.compile`` does; the module keeps its parameters' names, unlike in torch's ``OptimizedModule``.
            module._compiled_call_impl = self._regions.region(module._call_impl)

    def twin(self, module: torch.nn.Module) -> torch.nn.Module:
        """What ``torch.compile(module)`` returns."""
        self._asked = True
        if self._regions is None:
            self.leave_out(NOTE)
            return module
        return twin_of(module, self._regions.region)

    def whole(self, model: torch.nn.Module) -> None:
        """Compile a model of whose target nothing asked for it."""
        if self._regions is not None and not self._asked:
            self.module(model)


def twin_of(module: torch.nn.Module, region: Callable[[Callable[..., Any]], Callable[..., Any]]) -> torch.nn.Module:
    """Another object with the same attributes, which is compiled when it is called.

    The module itself stays eager, as in torch: programs throw away what ``torch.compile`` returns (torchtune 0.4.0 does
    so with its loss). Unlike in torch's ``OptimizedModule`` parameters keep their names.
    """
    calls: dict[int, Callable[..., Any]] = {}

    def call(self: torch.nn.Module) -> Callable[..., Any]:
        # By object: a deep copy is compiled for itself.
        if id(self) not in calls:
            calls[id(self)] = region(self._call_impl)
        return calls[id(self)]

    own = type(module)
    members = {
        "_compiled_call_impl": property(call, _keep),
        "_orig_mod": property(lambda self: _sharing(own, self)),
        "__module__": own.__module__,
    }
    return _sharing(type(own.__name__, (own,), members), module)


def _sharing(kind: type[torch.nn.Module], module: torch.nn.Module) -> torch.nn.Module:
    """An object of a class that has the very attributes of a module."""
    made: torch.nn.Module = object.__new__(kind)
    object.__setattr__(made, "__dict__", vars(module))
    return made


def _keep(*_: object) -> None:
    """``compile()`` of what is compiled already."""


@contextmanager
def compiling(choice: Compile) -> Iterator[Compiling]:
    """Install the meaning of ``torch.compile`` and ``Module.compile`` while the context lasts."""
    meaning = Compiling(choice)

    def compile_(model: Callable[..., Any] | None = None, **options: Any) -> Any:
        if model is None:
            # Without a function it is a decorator with options.
            return lambda function: compile_(function, **options)
        return meaning.twin(model) if isinstance(model, torch.nn.Module) else meaning.function(model)

    def compile_module(self: torch.nn.Module, *_: Any, **__: Any) -> None:
        meaning.module(self)

    with replaced(
        (Replacement("torch.compile", compile_), Replacement("torch.nn.Module.compile", compile_module)),
    ):
        yield meaning
