"""Which optimizers step: a target may make its own, or none, and a report must not name another."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any
from weakref import WeakSet

import torch
from torch.optim.optimizer import register_optimizer_step_pre_hook


class Steppers:
    """Names of the optimizers of a step, as far as they are torch's or made like torch's."""

    def __init__(self) -> None:
        self._names: dict[str, None] = {}
        self._given: WeakSet[torch.optim.Optimizer] = WeakSet()

    @property
    def names(self) -> tuple[str, ...]:
        """Classes of the optimizers that step, in order; an empty name is what memplan made."""
        return tuple(self._names)

    def give(self, optimizer: torch.optim.Optimizer) -> None:
        """An optimizer that memplan made, of the kind that the options name."""
        self._given.add(optimizer)

    @contextmanager
    def watching(self) -> Iterator[None]:
        """Note every optimizer that steps."""
        hook = register_optimizer_step_pre_hook(self._stepping)
        try:
            yield
        finally:
            hook.remove()

    def _stepping(self, optimizer: Any, *_: Any) -> None:
        self._names["" if optimizer in self._given else type(optimizer).__name__] = None
