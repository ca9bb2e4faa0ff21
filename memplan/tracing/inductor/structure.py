"""Arguments and results of a compiled region: tensors found and exchanged, whatever they are nested in."""

import copy
from collections.abc import Callable, Hashable, Mapping, MutableMapping
from dataclasses import dataclass, fields, is_dataclass
from typing import Any

import torch

PLAIN = (
    type(None),
    bool,
    int,
    float,
    complex,
    str,
    bytes,
    torch.dtype,
    torch.device,
    torch.layout,
    torch.memory_format,
)
"""Types that have no tensors in them and no identity."""


@dataclass(frozen=True, slots=True)
class TensorSlot:
    """Where a tensor stood."""

    index: int
    """Its position among the call's tensors."""


def emptied(value: Any, slot_of: Callable[[torch.Tensor], TensorSlot]) -> Any:
    """A copy with slots for tensors."""
    return _mapped(value, torch.Tensor, slot_of, {})


def filled(value: Any, tensors: Any) -> Any:
    """A copy with tensors for slots."""
    return _mapped(value, TensorSlot, lambda slot: tensors[slot.index], {})


def _mapped(value: Any, kind: type, change: Callable[[Any], Any], done: dict[int, Any]) -> Any:
    if isinstance(value, kind):
        return change(value)
    if isinstance(value, PLAIN) or callable(value):
        return value
    if id(value) not in done:
        done[id(value)] = _copied(value, lambda item: _mapped(item, kind, change, done))
    return done[id(value)]


def _copied(value: Any, change: Callable[[Any], Any]) -> Any:
    """A container with changed contents; an object of any other class with changed attributes."""
    if isinstance(value, Mapping):
        items = {key: change(item) for key, item in value.items()}
        return items if type(value) is dict or not isinstance(value, MutableMapping) else _refilled(value, items)
    if isinstance(value, tuple):
        parts = [change(item) for item in value]
        return type(value)(*parts) if hasattr(value, "_fields") else tuple(parts)
    if isinstance(value, list | set | frozenset):
        return type(value)(change(item) for item in value)
    duplicate = copy.copy(value)
    names = [each.name for each in fields(value)] if is_dataclass(value) else list(getattr(value, "__dict__", ()))
    for name in names:
        # Also where the class is frozen.
        object.__setattr__(duplicate, name, change(getattr(value, name)))
    return duplicate


def _refilled(value: MutableMapping[Any, Any], items: Mapping[Any, Any]) -> MutableMapping[Any, Any]:
    duplicate = copy.copy(value)
    for key, item in items.items():
        duplicate[key] = item
    return duplicate


def described(value: Any) -> Hashable:
    """All of a value that is not a tensor, as a key. What cannot be looked into counts by identity."""
    if isinstance(value, (TensorSlot, *PLAIN)):
        return type(value), value
    if isinstance(value, Mapping):
        return type(value), tuple((key, described(item)) for key, item in value.items())
    if isinstance(value, list | tuple):
        return type(value), tuple(described(item) for item in value)
    if callable(value) or not hasattr(value, "__dict__"):
        return type(value), id(value)
    return type(value), tuple((name, described(item)) for name, item in vars(value).items())


def stateful(value: Any) -> list[Any]:
    """Objects among a call's arguments that a call may change: a cache of keys and values, not a batch."""
    if isinstance(value, Mapping):
        return [found for item in value.values() for found in stateful(item)]
    if isinstance(value, list | tuple):
        return [found for item in value for found in stateful(item)]
    is_state = not isinstance(value, (torch.Tensor, torch.nn.Module, TensorSlot, *PLAIN)) and not is_dataclass(value)
    return [value] if is_state and not callable(value) and hasattr(value, "__dict__") else []
