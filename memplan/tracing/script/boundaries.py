"""Where the steps of a program that runs by itself begin and end, traced or run for real.

A step is what happens from one step of the optimizer that steps first to its next; in a program without an optimizer
object, from one backward to the next. The first one begins with the first forward after an optimizer was made.
"""

from abc import ABC, abstractmethod
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

import torch
from torch.nn.modules.module import register_module_forward_pre_hook
from torch.optim.optimizer import register_optimizer_step_post_hook

from memplan.seam.replace import Replacement, attribute, replaced

_INIT = "torch.optim.Optimizer.__init__"
_BACKWARD = "torch.autograd.backward"


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
        self._first: Any = None
        """The optimizer whose steps count."""

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
    def watching(self) -> Iterator[None]:
        """Follow the program that runs in the context."""
        make, backward = attribute(_INIT), attribute(_BACKWARD)

        def made(optimizer: torch.optim.Optimizer, *args: Any, **kwargs: Any) -> None:
            make(optimizer, *args, **kwargs)
            self.optimizers.append(optimizer)
            self.made()

        def went_back(*args: Any, **kwargs: Any) -> Any:
            result = backward(*args, **kwargs)
            if self.ends_with_backward():
                self._end()
            return result

        with ExitStack() as stack:
            stack.enter_context(replaced((Replacement(_INIT, made), Replacement(_BACKWARD, went_back))))
            for handle in (
                register_optimizer_step_post_hook(self._stepped),
                register_module_forward_pre_hook(self._called),
            ):
                stack.callback(handle.remove)
            yield

    def _called(self, module: torch.nn.Module, _: object) -> None:
        self.called(module)
        if self.optimizers and not self.has_begun and torch.is_grad_enabled():
            self._begin()

    def _stepped(self, optimizer: Any, *_: Any) -> None:
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
