"""Sizes that every CUDA scratch rule works with."""

import math
from collections.abc import Iterable
from typing import Any, NamedTuple

import torch

from memplan.tracing.scratch.rules import Call, Scratch

HALF_TYPES = frozenset({torch.float16, torch.bfloat16})
INDEX_BYTES = 8
"""Bytes of an int64 index."""
FLOAT_BYTES = 4
"""Bytes of a float32."""


class Layout(NamedTuple):
    """What a rule needs to know of a tensor, which need not exist."""

    shape: tuple[int, ...]
    strides: tuple[int, ...]
    """In elements."""
    dtype: torch.dtype

    @classmethod
    def of(cls, tensor: torch.Tensor) -> "Layout":
        """The layout of a tensor."""
        return cls(tuple(tensor.shape), tensor.stride(), tensor.dtype)

    @classmethod
    def dense(cls, shape: tuple[int, ...], dtype: torch.dtype) -> "Layout":
        """The row-major layout of a shape."""
        strides = tuple(product(shape[dim + 1 :]) for dim in range(len(shape)))
        return cls(shape, strides, dtype)

    @property
    def numel(self) -> int:
        """Elements."""
        return product(self.shape)

    @property
    def nbytes(self) -> int:
        """Bytes of a dense copy."""
        return self.numel * self.dtype.itemsize

    @property
    def is_contiguous(self) -> bool:
        """Do the elements lie in row-major order?"""
        step = 1
        for size, stride in zip(reversed(self.shape), reversed(self.strides), strict=True):
            if size != 1 and stride != step:
                return False
            step *= size
        return True

    def swapped(self, first: int, second: int) -> "Layout":
        """The layout with two dimensions exchanged."""
        order = list(range(len(self.shape)))
        order[first], order[second] = second, first
        return Layout(tuple(self.shape[d] for d in order), tuple(self.strides[d] for d in order), self.dtype)


def ceil_div(numerator: int, denominator: int) -> int:
    """The quotient, rounded up."""
    return -(-numerator // denominator)


def round_up(value: int, multiple: int) -> int:
    """The smallest multiple that is not below the value."""
    return ceil_div(value, multiple) * multiple


def nbytes(tensor: torch.Tensor) -> int:
    """Bytes of a dense copy of the tensor."""
    return tensor.numel() * tensor.element_size()


def opmath_bytes(dtype: torch.dtype) -> int:
    """Bytes of the type that kernels compute in (ATen/OpMathType.h): half types compute in float."""
    return FLOAT_BYTES if dtype in HALF_TYPES else dtype.itemsize


def argument(call: Call, position: int, name: str, default: Any = None) -> Any:
    """One argument of the call, however it was passed."""
    return call.args[position] if len(call.args) > position else call.kwargs.get(name, default)


def first_tensor(call: Call) -> torch.Tensor | None:
    """The first tensor among the arguments, or in the first list of them."""
    for value in call.args:
        if isinstance(value, torch.Tensor):
            return value
        if isinstance(value, (list, tuple)):
            inner = next((item for item in value if isinstance(item, torch.Tensor)), None)
            if inner is not None:
                return inner
    return None


def copy_if_strided(key: str, tensor: torch.Tensor | Layout) -> tuple[Scratch, ...]:
    """What ``tensor.contiguous()`` allocates: nothing if the tensor already is."""
    layout = tensor if isinstance(tensor, Layout) else Layout.of(tensor)
    return () if layout.is_contiguous else (Scratch("alloc", key, layout.nbytes),)


def allocations(sizes: Iterable[tuple[str, int]]) -> tuple[Scratch, ...]:
    """Allocations in order; empty ones are not made."""
    return tuple(Scratch("alloc", key, size) for key, size in sizes if size)


def frees(*keys: str) -> tuple[Scratch, ...]:
    """Frees in order."""
    return tuple(Scratch("free", key) for key in keys)


def product(sizes: Iterable[int]) -> int:
    """Product of sizes as an int."""
    return math.prod(int(size) for size in sizes)
