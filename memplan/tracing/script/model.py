"""The model of a program, found where the program first calls it to learn, and what is put on it from outside."""

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import nn

from memplan.errors import UsageError
from memplan.runtime.checkpoint.blocks import bare
from memplan.seam.replace import Replacement, attribute, replaced
from memplan.tracing.records import ModelPlace
from memplan.tracing.script.model_place import place_of

_CALL = "torch.nn.Module.__call__"


class ProgramModel:
    """Finds a program's model: the first that is called with gradients, has what learns, and will do.

    It is found before its own forward is looked up, so that this may be replaced too.

    Args:
        use: Takes the model (inside of DDP) and its place. A ``UsageError`` says why it will not do; then the next
            that the program calls is offered.
    """

    def __init__(self, use: Callable[[nn.Module, ModelPlace], None]) -> None:
        self._use = use
        self._depth = 0
        self._offered: set[int] = set()
        self._refusal: UsageError | None = None
        self._is_found = False

    @contextmanager
    def watching(self) -> Iterator[None]:
        """Follow the program that runs in the context."""
        call = attribute(_CALL)

        def called(module: nn.Module, *args: Any, **kwargs: Any) -> Any:
            if not self._depth:
                self._offer(module)
            self._depth += 1
            try:
                return call(module, *args, **kwargs)
            finally:
                self._depth -= 1

        with replaced((Replacement(_CALL, called),)):
            yield

    def conclude(self) -> None:
        """Complain where no model would do.

        Raises:
            UsageError: As the first model that was offered was refused.
        """
        if not self._is_found and self._refusal is not None:
            raise self._refusal

    def _offer(self, module: nn.Module) -> None:
        if self._is_found or id(module) in self._offered or not torch.is_grad_enabled():
            return
        model = bare(module)
        if not any(parameter.requires_grad for parameter in model.parameters()):
            return
        self._offered.add(id(module))
        try:
            self._use(model, place_of(model, sys._getframe(2)))
            self._is_found = True
        except UsageError as error:
            self._refusal = self._refusal or error
