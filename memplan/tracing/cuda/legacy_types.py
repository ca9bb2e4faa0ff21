"""``torch.cuda.FloatTensor`` and its like: constructors and names of types that say where a tensor lies as well."""

from typing import Any, NamedTuple

import torch

from memplan.seam.patches.cuda import LEGACY_TYPES

_DTYPES = {
    "Double": torch.float64,
    "Float": torch.float32,
    "Half": torch.float16,
    "BFloat16": torch.bfloat16,
    "Long": torch.int64,
    "Int": torch.int32,
    "Short": torch.int16,
    "Char": torch.int8,
    "Byte": torch.uint8,
    "Bool": torch.bool,
}
"""Beginning of the name → element type (docs.pytorch.org, "torch.Tensor", "Data types")."""


class LegacyType(NamedTuple):
    """What such a name says."""

    dtype: torch.dtype
    """Of its elements."""
    is_cuda: bool
    """On the GPU?"""


class _OnGpu(type):
    """Constructors are no classes of their tensors; ``isinstance`` asks them all the same."""

    dtype: torch.dtype

    def __instancecheck__(cls, value: object) -> bool:
        return isinstance(value, torch.Tensor) and value.is_cuda and value.dtype is cls.dtype

    def __call__(cls, *args: Any, **_: Any) -> torch.Tensor:
        """A tensor of the given sizes, or one of the given data."""
        if len(args) == 1 and not isinstance(args[0], int | torch.Size):
            return torch.as_tensor(args[0], dtype=cls.dtype, device="cuda")
        return torch.empty(*(args or (0,)), dtype=cls.dtype, device="cuda")


def _constructor(name: str) -> _OnGpu:
    dtype = _DTYPES[name.removesuffix("Tensor")]
    return _OnGpu(name, (), {"dtype": dtype, "is_cuda": True, "__module__": "torch.cuda"})


CUDA_TYPES = tuple(_constructor(row.name) for row in LEGACY_TYPES)
"""What stands for the types of ``torch.cuda``."""


def type_name(dtype: torch.dtype, *, on_device: bool) -> str:
    """Return what ``Tensor.type()`` says."""
    name = next((name for name, known in _DTYPES.items() if known is dtype), None)
    return str(dtype) if name is None else f"torch.{'cuda.' if on_device else ''}{name}Tensor"


def legacy_type(named: object) -> LegacyType | None:
    """Return what a constructor or its name means; None for what says nothing of a place."""
    if isinstance(named, _OnGpu):
        return LegacyType(named.dtype, is_cuda=True)
    parts = named.split(".") if isinstance(named, str) else []
    dtype = _DTYPES.get(parts[-1].removesuffix("Tensor")) if parts else None
    if dtype is not None:
        return LegacyType(dtype, is_cuda="cuda" in parts)
    if isinstance(named, type(torch.FloatTensor)):
        kind: Any = named
        return LegacyType(kind.dtype, is_cuda=kind.is_cuda)
    return None
