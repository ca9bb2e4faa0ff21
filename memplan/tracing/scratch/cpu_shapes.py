"""Sizes that the CPU scratch rules work with."""

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cache, reduce
from itertools import pairwise
from typing import Any

import torch

from memplan.tracing.scratch.rules import Call, Scratch, Script

FLOAT_BYTES = 4
"""Bytes of a float32."""
INDEX_BYTES = 8
"""Bytes of an int64 index."""
HALF_TYPES = frozenset({torch.float16, torch.bfloat16})
PAGE_BYTES = 4096
"""What oneDNN aligns the parts of its workspaces to (src/cpu/rnn/rnn_utils.cpp set_offsets)."""

promoted: Callable[[torch.dtype, torch.dtype], torch.dtype] = cache(torch.promote_types)
"""The common type of two, remembered: in a trace the question itself is an op that goes through the fake mode."""


def lanes() -> int:
    """Channels in one block of oneDNN's blocked layouts: as many float32 as fit the widest vectors of this machine.

    oneDNN chooses by the instruction set at hand (src/cpu/x64/jit_*_conv_kernel.cpp): 16 with AVX-512, else 8.
    """
    return 16 if "AVX512" in torch.backends.cpu.get_cpu_capability() else 8


def round_up(size: int, multiple: int) -> int:
    """The next multiple."""
    return -(-size // multiple) * multiple


def nbytes(tensor: torch.Tensor) -> int:
    """Bytes of a dense copy."""
    return tensor.numel() * tensor.element_size()


def product(sizes: Iterable[int]) -> int:
    """The product; 1 of nothing."""
    return math.prod(sizes)


def copy_bytes(tensor: Any) -> int:
    """Bytes that ``.contiguous()`` allocates: none if it is contiguous already, or no tensor."""
    if not isinstance(tensor, torch.Tensor) or tensor.is_contiguous():
        return 0
    return nbytes(tensor)


def argument(call: Call, position: int, name: str, default: Any = None) -> Any:
    """An argument given by position or keyword."""
    return call.args[position] if len(call.args) > position else call.kwargs.get(name, default)


def results(call: Call) -> tuple[Any, ...]:
    """The op's results, always as a tuple."""
    return tuple(call.out) if isinstance(call.out, list | tuple) else (call.out,)


def enlarge(tensor: torch.Tensor, size: int) -> None:
    """Give a fake result's storage the bytes that the real kernel gives it, where the meta kernel says fewer."""
    storage = tensor.untyped_storage()
    if storage.nbytes() < size:
        storage.resize_(size)


def common_type(operands: Sequence[torch.Tensor], values: Iterable[object] = ()) -> torch.dtype:
    """The type that operands are promoted to; those of no dimension, and numbers, count for their kind alone."""
    ranked = [each.dtype for each in operands if each.ndim] or [each.dtype for each in operands]
    common = reduce(promoted, ranked)
    fractions = any(isinstance(value, float) for value in values)
    return torch.get_default_dtype() if fractions and not (common.is_floating_point or common.is_complex) else common


def casts(operands: Iterable[torch.Tensor], common: torch.dtype) -> dict[str, int]:
    """Bytes of the copies of operands that have another type than the common one (``compute_types``, as below)."""
    others = {f"cast {place}": each for place, each in enumerate(operands) if each.dtype is not common}
    return {key: each.numel() * common.itemsize for key, each in others.items()}


def casts_in_place(into: torch.dtype, other: torch.dtype, count: int, key: str = "cast") -> tuple[Scratch, ...]:
    """Copies in the common type while so many elements are written in place (TensorIterator.cpp ``compute_types``)."""
    common = promoted(into, other)
    beside = ("self", "result") if into is not common else ()
    copied = (*beside, "other") if other is not common else beside
    allocs = [Scratch("alloc", f"{key} {each}", count * common.itemsize) for each in copied]
    return (*allocs, *(Scratch("free", each.key) for each in reversed(allocs)))


def allocations(before: Mapping[str, int], after: Mapping[str, int] | None = None) -> Script:
    """Allocate what has a size before and after the results; all of it is freed at the op's end."""
    return Script(
        before=tuple(Scratch("alloc", key, size) for key, size in before.items() if size),
        after=tuple(Scratch("alloc", key, size) for key, size in (after or {}).items() if size),
    )


def contiguous_copies(call: Call, positions: tuple[int, ...]) -> dict[str, int]:
    """Contiguous copies of these arguments, made first."""
    return {f"contiguous {position}": copy_bytes(call.args[position]) for position in positions}


def is_one_run(source: torch.Tensor, dims: Sequence[int] | None) -> bool:
    """Do the summed dimensions become one? Half types are summed as floats elsewhere (should_use_acc_buffer)."""
    summed = {dim % source.ndim for dim in dims} if dims and source.ndim else range(source.ndim)
    found = sorted((source.stride(dim), source.shape[dim]) for dim in summed if source.shape[dim] > 1)
    return all(below[0] * below[1] == above[0] for below, above in pairwise(found))
