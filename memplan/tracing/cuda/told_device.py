"""What Python code is told when it asks a tensor of a fake CPU trace for its device.

User code, and torch's own Python that it calls, runs under the function mode of ``placement``. There ``tensor.device``
says ``cuda:0`` of what lies on the device, for whoever hands that answer back to torch passes by the mode, which takes
``cuda`` for ``cpu``. Everything below the mode (torch's dispatcher, fake tensors, kernels written in Python) is told
``cpu``, because nothing there would take ``cuda`` for it.
"""

from collections.abc import Callable
from typing import Any

import torch

from memplan.seam.fake import FakeTensor, NestedTensor, TracingContext
from memplan.seam.modes import DisableTorchFunction, is_torch_function_mode_enabled
from memplan.seam.patches.cuda import FAKE_DEVICE, GROUP_BY_DEVICE, NEW_NESTED
from memplan.seam.replace import Replacement, attribute

CUDA = torch.device("cuda", 0)
"""The GPU that is played."""
_META = torch.device("meta")

Tell = Callable[[torch.Tensor, torch.device], torch.device]
"""A tensor and its device in the trace → what is told."""


def told(tensor: torch.Tensor, device: torch.device, is_host: Callable[[torch.Tensor], bool]) -> torch.device:
    """The device of a tensor as it would be on a CUDA machine.

    ``is_host`` says whether a tensor lies on the host; it is asked only where the device is ``cpu``.
    """
    return device if device.type != "cpu" or _asked_by_compiler() or is_host(tensor) else CUDA


def _asked_by_compiler() -> bool:
    """Does AOTAutograd ask, which builds tensors of its own from the answer, and not the code that it traces?"""
    return TracingContext.try_get() is not None and not torch.compiler.is_compiling()


def telling(tell: Tell) -> tuple[Replacement, ...]:
    """Let fake tensors and groups of them tell their device.

    Fake tensors have a property of their own, which no function mode is asked about.
    """
    group = attribute(GROUP_BY_DEVICE.path)

    def grouped(lists: Any, *options: Any) -> dict[tuple[torch.device | None, torch.dtype], Any]:
        # Optimizers and gradient clipping take the keys for the devices of what is in the groups.
        groups: dict[tuple[torch.device, torch.dtype], Any] = group(lists, *options)
        return {(tensors[0][0].device, dtype): (tensors, rest) for (_, dtype), (tensors, rest) in groups.items()}

    return (
        Replacement(FAKE_DEVICE.path, _property(tell)),
        Replacement(GROUP_BY_DEVICE.path, grouped),
        Replacement(NEW_NESTED.path, staticmethod(_nested)),
    )


_make_nested: Any = NestedTensor.__new__


def _nested(*args: Any, **options: Any) -> NestedTensor:
    """A nested tensor asks its values for their device, and takes the answer for its own."""
    with DisableTorchFunction():
        made: NestedTensor = _make_nested(*args, **options)
    return made


def _property(tell: Tell) -> property:
    former: Any = vars(FakeTensor)["device"]
    under_function_mode = is_torch_function_mode_enabled

    def device(tensor: FakeTensor) -> torch.device:
        if tensor.fake_mode.in_kernel_invocation:
            return _META
        if not under_function_mode():
            return tensor.fake_device
        with DisableTorchFunction():
            return tell(tensor, tensor.fake_device)

    return property(device, former.fset)
