"""The real surroundings of a job's loop: tensors with data on the device at hand (``memplan.tracing.surroundings``)."""

from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Any, Literal

import torch
from torch.nn.attention import SDPBackend, sdpa_kernel

from memplan.job.spec import Attention, JobSpec
from memplan.tracing.place import map_batch

_BACKENDS = {
    "flash": SDPBackend.FLASH_ATTENTION,
    "efficient": SDPBackend.EFFICIENT_ATTENTION,
    "cudnn": SDPBackend.CUDNN_ATTENTION,
    "math": SDPBackend.MATH,
}


class RealDevice:
    """Places models and batches on a real device."""

    def __init__(self, device: torch.device) -> None:
        self._device = device
        self._kept: list[torch.Tensor] = []

    @property
    def kind(self) -> Literal["cuda", "cpu"]:
        """The device type."""
        return "cuda" if self._device.type == "cuda" else "cpu"

    def place_model(self, model: torch.nn.Module) -> None:
        """``model.to(device)``."""
        model.to(self._device)

    def place_batch(self, make: Callable[[], Any]) -> Any:
        """``tensor.to(device)`` for every tensor of a batch; one that stands in it twice is moved once."""
        moved: dict[int, torch.Tensor] = {}

        def move(tensor: torch.Tensor) -> torch.Tensor:
            if id(tensor) not in moved:
                moved[id(tensor)] = tensor.to(self._device)
            return moved[id(tensor)]

        return map_batch(make(), move)

    def micro_batches(self, spec: JobSpec) -> range:
        """All of them run."""
        return range(spec.grad_accum)

    def loaded(self, batch: Any) -> None:
        """Nothing needs to be told."""

    def called(self, items: Mapping[str, str], held_back: tuple[str, ...]) -> None:
        """Nothing needs to be told."""

    def given(self, optimizer: torch.optim.Optimizer) -> None:
        """Nothing needs to be told."""

    def cached(self, output: Any) -> None:
        """Nothing needs to be told."""

    def keep(self, name: str, make: Callable[[], torch.Tensor], *, on_host: bool) -> None:
        """Keep a tensor, on the host or on the device."""
        del name
        self._kept.append(make() if on_host else make().to(self._device))

    def recomputing(self, module: torch.nn.Module) -> AbstractContextManager[Any]:
        """Nothing needs to be told."""
        del module
        return nullcontext()

    def assume(self, sentence: str) -> None:
        """What happens is not assumed."""


@contextmanager
def attention(choice: Attention, device: torch.device) -> Iterator[None]:
    """Let only the chosen SDPA kernel run; ``auto`` leaves the choice to PyTorch, and so does the CPU, as in traces."""
    if choice == "auto" or device.type == "cpu":
        yield
        return
    with sdpa_kernel(_BACKENDS[choice]):
        yield
