"""Memory that runs out where a test says so."""

from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import nn
from torch.utils._python_dispatch import TorchDispatchMode


class Shortage(TorchDispatchMode):
    """Raises what CUDA raises at the ops whose numbers are given; ops of forward and backward count alike.

    Ops that write into what is there already take no memory and are not counted.
    """

    def __init__(self, *at: int, error: Callable[[], Exception] | None = None) -> None:
        super().__init__()
        self.at = set(at)
        self.count = 0
        self.raised = 0
        self.error = error or (lambda: torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB."))

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        if func._schema.is_mutable:
            return func(*args, **(kwargs or {}))
        number, self.count = self.count, self.count + 1
        if number in self.at:
            self.raised += 1
            raise self.error()
        return func(*args, **(kwargs or {}))


class Wide(TorchDispatchMode):
    """Runs out of memory wherever a result has more rows than there is room for, in backward too."""

    def __init__(self, rows: int, *, width: int) -> None:
        super().__init__()
        self.rows, self.width = rows, width

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        made = func(*args, **(kwargs or {}))
        is_wide = isinstance(made, torch.Tensor) and made.dim() == 2 and made.shape[1] == self.width
        if is_wide and made.shape[0] > self.rows:
            raise torch.OutOfMemoryError("CUDA out of memory.")
        return made


class Net(nn.Module):
    """Two layers, one used twice, one weight that nobody uses, and rows of 3 in, 5 classes out."""

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Linear(3, 4)
        self.shared = nn.Linear(4, 4)
        self.last = nn.Linear(4, 5)
        self.unused = nn.Parameter(torch.ones(2))

    def forward(self, rows: torch.Tensor) -> torch.Tensor:
        hidden = torch.tanh(self.shared(torch.tanh(self.first(rows))))
        return self.last(torch.tanh(self.shared(hidden)))


def net() -> Net:
    torch.manual_seed(0)
    return Net().double()


def gradients(module: nn.Module) -> dict[str, torch.Tensor | None]:
    return {
        name: None if parameter.grad is None else parameter.grad.clone()
        for name, parameter in module.named_parameters()
    }


def difference(one: nn.Module, other: nn.Module) -> float:
    """Largest difference of gradients, relative to the largest gradient; the same parameters must have none."""
    left, right = gradients(one), gradients(other)
    assert {name for name, each in left.items() if each is None} == {n for n, each in right.items() if each is None}
    pairs = [(each, right[name]) for name, each in left.items() if each is not None]
    scale = max(float(each.abs().max()) for _, each in pairs)
    return max(float((mine - theirs).abs().max()) for mine, theirs in pairs) / max(scale, 1e-300)
