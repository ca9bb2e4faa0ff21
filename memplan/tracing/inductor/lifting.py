"""Parameters, buffers and other tensors of modules, which a captured graph takes as inputs."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from inspect import getclosurevars, unwrap
from typing import Any

import torch


def modules_of(function: Callable[..., Any], args: tuple[Any, ...]) -> list[torch.nn.Module]:
    """The modules that a function may use: itself, what it is bound to, its arguments, closure and globals."""
    plain = unwrap(function)
    candidates: list[Any] = [function, getattr(function, "__self__", None), *args]
    if hasattr(plain, "__code__"):
        variables = getclosurevars(plain)
        candidates += [*variables.nonlocals.values(), *variables.globals.values()]
    return [each for each in candidates if isinstance(each, torch.nn.Module)]


def tensors_of(modules: list[torch.nn.Module]) -> list[torch.Tensor]:
    """All tensors that modules hold, each once, in order."""
    found = {id(tensor): tensor for table in _tables(modules) for tensor in table.values()
             if isinstance(tensor, torch.Tensor)}  # fmt: skip
    return list(found.values())


@contextmanager
def exchanged(modules: list[torch.nn.Module], others: dict[int, torch.Tensor]) -> Iterator[None]:
    """Let modules hold other tensors (by ``id``) meanwhile; what they had is back at the end."""
    tables = [(table, dict(table)) for table in _tables(modules)]
    for table, former in tables:
        table.update({name: others[id(held)] for name, held in former.items() if id(held) in others})
    try:
        yield
    finally:
        for table, former in tables:
            table.clear()
            table.update(former)


def _tables(modules: list[torch.nn.Module]) -> Iterator[dict[str, Any]]:
    seen: set[int] = set()
    for root in modules:
        for module in root.modules():
            if id(module) not in seen:
                seen.add(id(module))
                yield from (module._parameters, module._buffers, module.__dict__)
