"""Parameters that a program makes of its own data: word vectors, a scalar of NumPy."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch

from memplan.seam.replace import Replacement, attribute, replaced

_REGISTER = "torch.nn.Module.register_parameter"


@contextmanager
def own_data() -> Iterator[None]:
    """Let a module's real parameters be fake ones of the host.

    A model's move sets ``.data``, by which a real parameter would lose its memory and keep its class.
    """
    register = attribute(_REGISTER)

    def registered(module: torch.nn.Module, name: str, param: Any) -> None:
        is_real = type(param) is torch.nn.Parameter and not param.is_meta
        register(module, name, _fake(param) if is_real else param)

    with replaced((Replacement(_REGISTER, registered),)):
        yield


def _fake(real: torch.nn.Parameter) -> torch.nn.Parameter:
    like = torch.empty_strided(real.shape, real.stride(), dtype=real.dtype, device="cpu")
    return torch.nn.Parameter(like, requires_grad=real.requires_grad)
