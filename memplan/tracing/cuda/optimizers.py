"""Optimizers and gradient clipping as they run on CUDA parameters: foreach by default, fused where asked for.

Torch decides by device name and exact tensor type; fake CPU parameters are neither, so both lists are widened. Source:
torch/optim/optimizer.py ``_default_to_fused_or_foreach``, ``_get_capturable_supported_devices``;
torch/utils/_foreach_utils.py ``_has_foreach_support``, used by ``clip_grad_norm_`` and ``clip_grad_value_`` (torch 2.6
to 2.13).
"""

import contextlib
import sys
from collections.abc import Callable, Iterator
from typing import Any

from memplan.seam.fake import FakeTensor
from memplan.seam.patches.cuda import DEVICE_LISTS, HELD_DEVICE_LISTS, TYPE_LISTS
from memplan.seam.replace import Replacement, attribute, replaced


@contextlib.contextmanager
def cuda_optimizers() -> Iterator[None]:
    """Let optimizers take fake CPU parameters for CUDA ones."""
    with replaced(_device_lists()), _fake_tensors_welcome():
        yield


def _device_lists() -> tuple[Replacement, ...]:
    """Every module that has imported one of the functions holds a name of its own for it."""
    # torch.optim deletes its submodules' names, so they are found where Python keeps them.
    modules = [module for name, module in sys.modules.items() if name.startswith("torch.optim.")]
    held = (
        Replacement(row.path, _with_cpu(getattr(module, row.name)), module)
        for module in modules
        for row in HELD_DEVICE_LISTS
        if module.__name__ != "torch.optim.optimizer" and hasattr(module, row.name)
    )
    return (*(Replacement(row.path, _with_cpu(attribute(row.path))) for row in DEVICE_LISTS), *held)


def _with_cpu(function: Callable[..., list[str]]) -> Callable[..., list[str]]:
    def devices(*args: object, **kwargs: object) -> list[str]:
        return [*function(*args, **kwargs), "cpu"]

    return devices


@contextlib.contextmanager
def _fake_tensors_welcome() -> Iterator[None]:
    """The lists of exact types are shared by reference, so they are changed in place."""
    lists: list[list[Any]] = [attribute(row.path) for row in TYPE_LISTS]
    for types in lists:
        types.append(FakeTensor)
    try:
        yield
    finally:
        for types in lists:
            types.remove(FakeTensor)
