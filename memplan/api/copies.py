"""Copies of live objects without their data: what a trace is given in place of a model, a batch or an optimizer."""

import copy
import inspect
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any

from memplan.job.huggingface.materialise import build

if TYPE_CHECKING:
    import torch

_TRAINERS = ("_trainer", "_fabric")


def model_maker(model: "torch.nn.Module") -> "Callable[[], torch.nn.Module]":
    """Return what builds the model anew, its tensors without data: shapes, types, ties and gradients asked for stay."""
    return lambda: build(lambda: _hollow(model))


def _hollow(model: "torch.nn.Module") -> "torch.nn.Module":
    """A copy on the meta device. ``deepcopy`` is told of every tensor beforehand, so that it copies none."""
    memo: dict[int, Any] = {}
    for tensor in _tensors(model):
        memo.setdefault(id(tensor), _on_meta(tensor))
    for module in model.modules():
        # A module of Lightning knows the trainer that runs it, and that all the rest.
        memo |= {id(trainer): None for name, trainer in vars(module).items() if name in _TRAINERS and trainer}
    return copy.deepcopy(model, memo)


def _tensors(model: "torch.nn.Module") -> "Iterator[torch.Tensor]":
    for module in model.modules():
        yield from module.parameters(recurse=False)
        yield from module.buffers(recurse=False)
        yield from tensors_inside(vars(module).values())


def tensors_inside(values: Iterable[Any], depth: int = 3) -> "Iterator[torch.Tensor]":
    """Tensors that a module keeps otherwise: as attributes, and in their lists and dictionaries."""
    import torch

    for value in values:
        if isinstance(value, torch.Tensor):
            yield value
        elif isinstance(value, list | tuple | dict) and depth:
            yield from tensors_inside(value.values() if isinstance(value, dict) else value, depth - 1)


def _on_meta(tensor: "torch.Tensor") -> "torch.Tensor":
    import torch

    empty = torch.empty_strided(tensor.size(), tensor.stride(), dtype=tensor.dtype, device="meta")
    if isinstance(tensor, torch.nn.Parameter):
        return torch.nn.Parameter(empty, requires_grad=tensor.requires_grad)
    return empty.requires_grad_(tensor.requires_grad)


def batch_maker(batch: Any) -> Callable[[int], Any]:
    """Return what makes a batch like this one, as often as it is asked for: ``(batch_size)`` → batch."""

    def make(batch_size: int) -> Any:
        del batch_size  # It is the batch's own.
        return like(batch)

    return make


def like(value: Any, device: str | None = None) -> Any:
    """Return the same without data: tensors, moved to a device where one is named, and what holds them."""
    import torch

    def inner(item: Any) -> Any:
        return like(item, device)

    if isinstance(value, torch.Tensor):
        empty = torch.empty_strided(value.size(), value.stride(), dtype=value.dtype)
        return empty if device is None else empty.to(device).requires_grad_(value.requires_grad)
    if isinstance(value, Mapping):  # Tokenizers' batches are mappings of a class of their own.
        return {key: inner(item) for key, item in value.items()}
    if isinstance(value, tuple) and hasattr(value, "_fields"):
        return type(value)(*map(inner, value))
    return type(value)(map(inner, value)) if isinstance(value, list | tuple) else value


def samples(batch: Any) -> int:
    """Return how many samples a batch has: the first dimension of its first tensor; 1 where it has none."""
    import torch

    if isinstance(batch, torch.Tensor):
        return batch.shape[0] if batch.dim() else 1
    values = batch.values() if isinstance(batch, Mapping) else batch if isinstance(batch, list | tuple) else ()
    return next((samples(value) for value in values if isinstance(value, torch.Tensor | Mapping | list | tuple)), 1)


def optimizer_maker(
    optimizer: "torch.optim.Optimizer", model: "torch.nn.Module"
) -> "Callable[[Iterable[torch.nn.Parameter]], torch.optim.Optimizer]":
    """Return what makes such an optimizer of the copy's parameters: its class, groups and settings, without its state.

    Raises:
        ValueError: When called: it holds a parameter that is none of the model's.
    """
    kind, places = type(optimizer), {id(parameter): place for place, parameter in enumerate(model.parameters())}
    accepted = inspect.signature(kind).parameters
    settings = {name: value for name, value in optimizer.defaults.items() if name in accepted}

    def make(parameters: "Iterable[torch.nn.Parameter]") -> "torch.optim.Optimizer":
        copies = list(parameters)
        foreign = [each for group in optimizer.param_groups for each in group["params"] if id(each) not in places]
        if foreign:
            raise ValueError(f"the optimizer holds {len(foreign)} parameters that are none of the model's")
        groups = [
            {**group, "params": [copies[places[id(each)]] for each in group["params"]]}
            for group in optimizer.param_groups
        ]
        return kind(groups, **settings)

    return make
