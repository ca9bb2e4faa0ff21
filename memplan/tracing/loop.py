"""The training loop that is traced: the one most people write, with its local variables.

The locals matter. In a real loop ``output`` and ``loss`` live until the next iteration rebinds them, and with them
whatever they keep alive; so the loops here are generators that keep their frames between steps, and yield after each.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import Any

import torch

from memplan.tracing.parameter_kinds import clip


@dataclass(frozen=True, slots=True, kw_only=True)
class Parts:
    """What a loop is made of; every callable runs on fake tensors."""

    model: torch.nn.Module
    """On its device, in train or eval mode."""
    optimizer: Any
    """A torch optimizer, or several in a tuple, list or mapping; None outside training."""
    next_batch: Callable[[], Any]
    """Makes the next batch on the device."""
    call: Callable[[torch.nn.Module, Any], Any]
    """``(model, batch)`` → output."""
    loss: Callable[[Any, Any], torch.Tensor]
    """``(output, batch)`` → scalar."""
    autocast: Callable[[], AbstractContextManager[Any]]
    """The context of forward and loss."""
    scaler: Any
    """GradScaler for fp16 under autocast, else None."""
    accumulate: int
    """Micro-batches per optimizer step."""
    micro_batches: Callable[[], Iterable[int]]
    """The numbers of those that run: all, or a few that show what the others do."""
    clip_norm: float | None
    """Maximum gradient norm, None for no clipping."""
    around: Callable[[Any], AbstractContextManager[Any]] = nullcontext
    """``(batch)`` → the context of its forward, loss and backward."""
    unreduced: Callable[[], AbstractContextManager[Any]] = nullcontext
    """The context of all micro-batches but a step's last (``DistributedDataParallel.no_sync``)."""


def training(parts: Parts) -> Iterator[None]:
    """Forward, loss, backward, optimizer step, ``zero_grad()``, again and again; yields after every optimizer step."""
    batch = output = loss = None
    while True:
        for number in parts.micro_batches():
            # ``for batch in loader`` rebinds the name before the new batch is moved to the device.
            batch = None
            batch = parts.next_batch()
            with parts.around(batch), parts.unreduced() if number + 1 < parts.accumulate else nullcontext():
                with parts.autocast():
                    output = parts.call(parts.model, batch)
                    loss = parts.loss(output, batch)
                    if parts.accumulate > 1:
                        loss = loss / parts.accumulate
                if parts.scaler is None:
                    loss.backward()  # type: ignore[no-untyped-call]
                else:
                    parts.scaler.scale(loss).backward()
        update(parts)
        for optimizer in optimizers_of(parts.optimizer):
            optimizer.zero_grad()
        yield


def update(parts: Parts) -> None:
    """Clip gradients and step the optimizer, through the scaler if there is one."""
    optimizers = optimizers_of(parts.optimizer)
    if parts.clip_norm is not None:
        for optimizer in optimizers if parts.scaler is not None else ():
            parts.scaler.unscale_(optimizer)
        clip(parts.model.parameters(), parts.clip_norm)
    for optimizer in optimizers:
        if parts.scaler is None:
            optimizer.step()
        else:
            parts.scaler.step(optimizer)
    if parts.scaler is not None:
        parts.scaler.update()


def optimizers_of(given: Any) -> list[Any]:
    """What a target's ``optimizer`` returned, one by one: several may come as a tuple, list or mapping."""
    if isinstance(given, Mapping):
        return optimizers_of(list(given.values()))
    if isinstance(given, tuple | list):
        return [each for part in given for each in optimizers_of(part)]
    # Schedulers that stand beside them, as Lightning has them, have no gradients to clear.
    return [given] if hasattr(given, "zero_grad") else []


def own_steps(parts: Parts, train_step: Callable[[torch.nn.Module, Any, Any], Any]) -> Iterator[None]:
    """The user's own ``train_step``, called with a fresh batch each time; its result lives until the next one's."""
    while True:
        batch = None
        batch = parts.next_batch()
        result = train_step(parts.model, parts.optimizer, batch)  # noqa: F841 - the name keeps it alive
        yield


def inference(parts: Parts) -> Iterator[None]:
    """Forward passes (or whole generations) under ``torch.no_grad()``; yields after each."""
    with torch.no_grad():
        while True:
            batch = None
            batch = parts.next_batch()
            with parts.autocast():
                output = parts.call(parts.model, batch)  # noqa: F841 - the name keeps it alive
            yield
