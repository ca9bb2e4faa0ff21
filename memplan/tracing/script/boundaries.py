"""Where the steps of a program that runs by itself begin and end, traced or run for real.

A step is what happens from one step of the optimizer that steps first to its next; in a program without an optimizer
object, from one backward to the next, or from one gradient to the next in programs that ask for gradients alone
(``autograd.grad``, ``torch.func.grad``). The first one begins with the first forward after an optimizer was made.
"""

import functools
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

import torch
from torch.nn.modules.module import register_module_forward_pre_hook
from torch.optim.optimizer import register_optimizer_step_post_hook

from memplan.seam.replace import Replacement, attribute, replaced

_INIT = "torch.optim.Optimizer.__init__"
_BACKWARD = "torch.autograd.backward"
_GRADIENTS = "torch.autograd.grad"
_TRANSFORMS = ("torch.func.grad", "torch.func.grad_and_value")


class StepRepeated(BaseException):
    """There are enough steps. Programs that catch ``Exception`` let it pass."""


class Boundaries(ABC):
    """Follows a program's optimizers, backward passes and modules."""

    def __init__(self) -> None:
        self.optimizers: list[Any] = []
        """All that were made, in order."""
        self.has_begun = False
        """Has the first step begun?"""
        self._is_over = False
        self._goes_back = False
        """Has the program run a backward pass of its own?"""
        self._depth = 0
        """How many functions of ``torch.func.grad`` run, one within another."""
        self._first: Any = None
        """The optimizer, or the engine, whose steps count."""
        self._is_of_engine = False
        """Does an engine run, whose optimizers step at its will?"""

    @abstractmethod
    def made(self) -> None:
        """An optimizer was made."""

    @abstractmethod
    def begin_step(self) -> None:
        """A step begins."""

    @abstractmethod
    def end_step(self) -> bool:
        """A step ends; is there to be another?"""

    @abstractmethod
    def called(self, module: torch.nn.Module) -> None:
        """A module is about to run its forward."""

    def ends_with_backward(self) -> bool:
        """Does the step end with the backward pass that has just ended?"""
        return not self.optimizers

    @contextmanager
    def of_engine(self) -> Iterator[None]:
        """Take no step that an optimizer makes in the context for one of the program."""
        self._is_of_engine = True
        yield
        self._is_of_engine = False

    @contextmanager
    def watching(self) -> Iterator[None]:
        """Follow the program that runs in the context."""
        make, backward, gradients = attribute(_INIT), attribute(_BACKWARD), attribute(_GRADIENTS)

        def made(optimizer: torch.optim.Optimizer, *args: Any, **kwargs: Any) -> None:
            make(optimizer, *args, **kwargs)
            self.optimizers.append(optimizer)
            self.made()

        def went_back(*args: Any, **kwargs: Any) -> Any:
            self._goes_back = True
            result = backward(*args, **kwargs)
            if self.ends_with_backward():
                self._end()
            return result

        def differentiated(*args: Any, **kwargs: Any) -> Any:
            result = gradients(*args, **kwargs)
            # What keeps its graph is differentiated once more: an inner step, or a penalty.
            if not kwargs.get("create_graph"):
                self._had_gradients()
            return result

        table = (
            Replacement(_INIT, made),
            Replacement(_BACKWARD, went_back),
            Replacement(_GRADIENTS, differentiated),
            *(Replacement(name, self._transforming(attribute(name))) for name in _TRANSFORMS),
        )
        with ExitStack() as stack:
            stack.enter_context(replaced(table))
            for handle in (
                register_optimizer_step_post_hook(self.stepped),
                register_module_forward_pre_hook(self.calls_module),
            ):
                stack.callback(handle.remove)
            yield

    def _transforming(self, transform: Callable[..., Any]) -> Callable[..., Any]:
        """Follow the calls of what ``torch.func.grad`` makes of a function; the outermost of them is the step's."""

        def made(function: Any, *args: Any, **kwargs: Any) -> Any:
            run = transform(function, *args, **kwargs)

            @functools.wraps(run)
            def followed(*args: Any, **kwargs: Any) -> Any:
                self._depth += 1
                try:
                    result = run(*args, **kwargs)
                finally:
                    self._depth -= 1
                self._had_gradients()
                return result

            return followed

        return made

    def _had_gradients(self) -> None:
        if not self._depth and not self._goes_back and not self.optimizers:
            self._end()

    def calls_module(self, module: torch.nn.Module, _: object = None) -> None:
        """A module is about to run; the first that learns begins the first step."""
        self.called(module)
        if self.optimizers and not self.has_begun and torch.is_grad_enabled():
            self._begin()

    def stepped(self, optimizer: Any, *_: Any) -> None:
        """An optimizer or an engine has stepped."""
        if self._is_of_engine:
            return
        self._first = optimizer if self._first is None else self._first
        if optimizer is self._first:
            self._end()

    def _begin(self) -> None:
        self.has_begun = True
        self.begin_step()

    def _end(self) -> None:
        # A program that catches everything goes on; what it does then is not looked at.
        self._is_over = self._is_over or (self.has_begun and not self.end_step())
        if self._is_over:
            raise StepRepeated
        self._begin()
