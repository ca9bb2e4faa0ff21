"""What a step changes before its optimizer runs, put back where the step dies: gradients, buffers, random numbers."""

from dataclasses import dataclass

import torch
from torch import nn


@dataclass(frozen=True, slots=True)
class _Random:
    """Random number generators of PyTorch at one moment."""

    cpu: torch.Tensor
    cuda: torch.Tensor | None

    @classmethod
    def now(cls) -> "_Random":
        # The state of CUDA's generator (seed and offset) stands on the host: no device waits.
        is_cuda: bool = torch.cuda.is_initialized()  # type: ignore[no-untyped-call]
        return cls(torch.get_rng_state(), torch.cuda.get_rng_state() if is_cuda else None)

    def put_back(self) -> None:
        torch.set_rng_state(self.cpu)
        if self.cuda is not None:
            torch.cuda.set_rng_state(self.cuda)


class StepState:
    """What a module had when a step began.

    Gradients that were there are laid aside, not copied, and added at the end: where there are none, as after
    ``zero_grad``, this costs nothing. Buffers of the state dict (running statistics) are copied.

    The module's ``.grad`` are None from here on, until ``keep`` or ``undo``.
    """

    def __init__(self, module: nn.Module) -> None:
        self.parameters = [parameter for parameter in module.parameters() if parameter.requires_grad]
        """Those that get gradients."""
        self._gradients = [parameter.grad for parameter in self.parameters]
        self._buffers = _lasting_buffers(module)
        # A step begins where memory is emptiest: running out here is nothing that a smaller batch would help.
        self._copies = [buffer.clone() for buffer in self._buffers]
        self._random = _Random.now()
        self._clear()

    def rewind(self) -> None:
        """Go back to the beginning of the step: no gradients, buffers and random numbers as they were."""
        self._clear()
        with torch.no_grad():
            for buffer, copy in zip(self._buffers, self._copies, strict=True):
                buffer.copy_(copy)
        self._random.put_back()

    def keep(self) -> None:
        """Add the gradients that were there before the step to its own."""
        for parameter, before in zip(self.parameters, self._gradients, strict=True):
            if before is not None:
                if parameter.grad is not None:
                    before.add_(parameter.grad)
                parameter.grad = before

    def undo(self) -> None:
        """Leave everything as it was before the step."""
        self.rewind()
        for parameter, before in zip(self.parameters, self._gradients, strict=True):
            parameter.grad = before

    def _clear(self) -> None:
        for parameter in self.parameters:
            parameter.grad = None


def _lasting_buffers(module: nn.Module) -> list[torch.Tensor]:
    buffers = dict(module.named_buffers())
    if not buffers:
        return []
    kept = module.state_dict(keep_vars=True)
    return [buffer for name, buffer in buffers.items() if kept.get(name) is buffer]
