"""Objects of the running process as a target: a module that holds what a target file would define."""

import itertools
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import ModuleType
from typing import TYPE_CHECKING, Any

from memplan.api.copies import batch_maker, model_maker, optimizer_maker
from memplan.errors import UsageError

if TYPE_CHECKING:
    import torch

LIVE = "memplan_live_"
"""How the names of such modules begin."""
_NUMBERS = itertools.count(1)


@contextmanager
def live_target(
    model: "torch.nn.Module | Callable[[], torch.nn.Module]",
    batch: Any,
    *,
    loss: Callable[..., Any] | None,
    optimizer: Any,
    step: Callable[..., Any] | None,
) -> Iterator[str]:
    """Give the name of a target that stands for these objects, as long as the context lasts.

    Args:
        model: A model, or what makes one.
        batch: A batch, a function ``(batch_size)`` or ``(batch_size, seq_len)``, or None.
        loss: ``(output, batch)``, or one of torch's own losses, which is given the batch's last item.
        optimizer: An optimizer of the model's parameters, or a function of them.
        step: ``(model, optimizer, batch)``.

    Yields:
        ``module:factory``.
    """
    import torch

    if isinstance(optimizer, torch.optim.Optimizer):
        if not isinstance(model, torch.nn.Module):
            raise UsageError("an optimizer that exists needs the model that exists", hint="give optimizer=a function")
        optimizer = optimizer_maker(optimizer, model)
    module = ModuleType(f"{LIVE}{next(_NUMBERS)}")
    module.__file__ = None
    parts = {
        "model": model_maker(model) if isinstance(model, torch.nn.Module) else model,
        "batch": batch if callable(batch) or batch is None else batch_maker(batch),
        "loss": _of_batch(loss) if loss is not None and _is_of_torch(loss) else loss,
        "optimizer": optimizer,
        "train_step": step,
    }
    vars(module).update({name: part for name, part in parts.items() if part is not None})
    sys.modules[module.__name__] = module
    try:
        yield f"{module.__name__}:model"
    finally:
        del sys.modules[module.__name__]


def _is_of_torch(loss: Callable[..., Any]) -> bool:
    """Is it one of torch's losses, which take an output and what it should have been?"""
    owner = getattr(loss, "__module__", None) or type(loss).__module__
    return owner.partition(".")[0] == "torch"


def _of_batch(loss: Callable[..., Any]) -> Callable[[Any, Any], Any]:
    return lambda output, batch: loss(output, batch[-1])
