"""Squared norms of gradients of single backward passes, read while they are accumulated: for the noise scale."""

from types import TracebackType
from typing import Self

import torch
from torch import nn


class GradientNorms:
    """Watches the backward passes of a module in a ``with`` block. Not thread-safe.

    What reaches ``.grad`` in each pass is seen before it is added to what stands there, so that no copy is needed::

        with GradientNorms(model) as norms:
            for part in parts:
                loss(part).backward()
                norms.end_of_pass()
        norms.squared()

    It costs a norm of every gradient: watch one step of some hundred.
    """

    def __init__(self, module: nn.Module) -> None:
        self._parameters = [parameter for parameter in module.parameters() if parameter.requires_grad]
        self._hooks: list[torch.utils.hooks.RemovableHandle] = []
        self._now: list[torch.Tensor] = []
        self._passes: list[torch.Tensor] = []

    def __enter__(self) -> Self:
        self._hooks = [
            parameter.register_hook(self._see)  # type: ignore[no-untyped-call]
            for parameter in self._parameters
        ]
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for hook in self._hooks:
            hook.remove()
        self._hooks.clear()

    def end_of_pass(self) -> None:
        """A backward pass is complete."""
        total = torch.stack(self._now).sum() if self._now else torch.zeros(())
        self._now = []
        self._passes.append(total)

    def squared(self) -> list[float]:
        """Squared norm of every pass so far, in order; waits for the device, and begins anew."""
        passes, self._passes = self._passes, []
        return [float(total) for total in passes]

    def _see(self, gradient: torch.Tensor) -> None:
        # Squares of half precision overflow.
        self._now.append(torch.linalg.vector_norm(gradient.detach(), dtype=_wide(gradient.dtype)).square())


def squared_norm(module: nn.Module) -> float:
    """Squared norm of all that stands in ``.grad``; waits for the device."""
    gradients = [parameter.grad for parameter in module.parameters() if parameter.grad is not None]
    norms = [torch.linalg.vector_norm(gradient, dtype=_wide(gradient.dtype)) for gradient in gradients]
    return float(torch.stack(norms).square().sum()) if norms else 0.0


def _wide(dtype: torch.dtype) -> torch.dtype:
    return torch.float64 if dtype is torch.float64 else torch.float32
