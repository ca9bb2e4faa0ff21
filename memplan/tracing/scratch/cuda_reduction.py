"""Scratch of CUDA reductions: the accumulation buffer and semaphores of split ones, and copies that change the type.

Each op's accumulator is the ``arg_t`` of its functor. Buffers come after the output and go in reverse order, all inside
``gpu_reduce_kernel`` (aten/src/ATen/native/cuda/Reduce.cuh).
"""

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, replace
from itertools import islice

import torch

from memplan.tracing.records import DeviceTraits
from memplan.tracing.scratch.cuda_iterator import fits_32_bit, iteration, split_32_bit
from memplan.tracing.scratch.cuda_reduce_config import Kernel, global_scratch
from memplan.tracing.scratch.cuda_shapes import (
    HALF_TYPES,
    Layout,
    argument,
    first_tensor,
    frees,
    nbytes,
    opmath_bytes,
    product,
)
from memplan.tracing.scratch.rules import Call, Rule, Scratch, Script


@dataclass(frozen=True, slots=True, kw_only=True)
class Reducer:
    """How one family of ops reduces."""

    accumulate_bytes: Callable[[torch.dtype], int]
    """Bytes of the accumulator, by the type that the kernel reads."""
    dim_position: int | None = 1
    """Where ``dim`` stands among the arguments; None if all dimensions are reduced."""
    unroll: int = 4
    """``vt0`` of the instantiation."""
    converts: bool = False
    """Is the input copied to the output's type first, where that is not a mere widening of a half type?"""
    accumulates_in_output: bool = True
    """Can partial results of a 64-bit-indexed reduction rest in the output (the accumulator converts to its type)?"""


def _pair_with_index(dtype: torch.dtype) -> int:
    """A value and an int64 index (SharedReduceOps.h MinMaxReductionOps): 16 bytes for every type of up to 8."""
    return 16 if dtype.itemsize <= 8 else 2 * dtype.itemsize


def _welford(dtype: torch.dtype) -> int:
    """WelfordData<acc, int32_t>: mean, m2, n, nf (SharedReduceOps.h), padded to the alignment of a double."""
    return 32 if dtype is torch.float64 else 16


def _itemsize(dtype: torch.dtype) -> int:
    return dtype.itemsize


def _boolean(_: torch.dtype) -> int:
    return 1


SUM = Reducer(accumulate_bytes=opmath_bytes, converts=True)
"""ReduceSumProdKernel.cu sum_functor and prod_functor; ReduceMomentKernel.cu mean_kernel_impl."""
EXTREMUM = Reducer(accumulate_bytes=_itemsize)
"""ReduceMaxValuesKernel.cu max_values_kernel_cuda_impl, ReduceMinValuesKernel.cu: func_wrapper over scalar_t."""
LOGIC = Reducer(accumulate_bytes=_boolean)
"""ReduceLogicKernel.cu and_kernel_cuda, or_kernel_cuda: a bool since torch 2.12 (pytorch/pytorch #176132); before it,
an element's own type."""
INDEXED_EXTREMUM = Reducer(accumulate_bytes=_pair_with_index, accumulates_in_output=False)
"""ReduceMinValuesKernel.cu min_launch_kernel, ReduceMaxValuesKernel.cu, ReduceArgMaxKernel.cu."""
BOTH_EXTREMA = Reducer(accumulate_bytes=lambda dtype: 2 * dtype.itemsize, accumulates_in_output=False)
"""ReduceAMinMaxKernel.cu aminmax_kernel: a pair of values."""
MOMENT = Reducer(accumulate_bytes=_welford, unroll=2, accumulates_in_output=False)
"""ReduceMomentKernel.cu std_var_kernel_impl (vt0 = 2)."""
NORM = Reducer(accumulate_bytes=opmath_bytes, converts=True)
"""ReduceNormKernel.cu norm_launch_kernel: every norm accumulates one number, in float for half types."""


_MOST_PIECES = 1024
"""2 TiB of input: whatever is larger fits on no device, and nobody waits for its exact buffers."""


def reduced_dims(tensor: torch.Tensor, dim: object) -> frozenset[int]:
    """Dimensions that a ``dim`` argument names; none and empty mean all."""
    if isinstance(dim, int):
        dim = (dim,)
    if not isinstance(dim, Collection) or not dim or not tensor.dim():
        return frozenset(range(tensor.dim()))
    return frozenset(d % tensor.dim() for d in dim)


def reduction_scratch(
    device: DeviceTraits, tensor: Layout, dims: Collection[int], out_dtype: torch.dtype, reducer: Reducer
) -> tuple[Scratch, ...]:
    """Everything that one reduction takes and returns.

    Returns:
        Allocations and frees in order.
    """
    # make_reduction (ReduceOpsUtils.h): half types are widened to float inside the kernel, anything else by a copy.
    widens = tensor.dtype in HALF_TYPES and out_dtype is torch.float32
    cast = reducer.converts and tensor.dtype != out_dtype and not widens
    dtype = out_dtype if cast else tensor.dtype
    inner = _launches(device, tensor._replace(dtype=dtype), dims, out_dtype, reducer)
    if not cast:
        return inner
    return Scratch("alloc", "cast", tensor.numel * dtype.itemsize), *inner, *frees("cast")


def _launches(
    device: DeviceTraits, tensor: Layout, dims: Collection[int], out_dtype: torch.dtype, reducer: Reducer
) -> tuple[Scratch, ...]:
    if not tensor.shape or not tensor.numel:
        return ()
    in_bytes, out_bytes = tensor.dtype.itemsize, out_dtype.itemsize
    accumulate = reducer.accumulate_bytes(tensor.dtype)
    kernel = Kernel(in_bytes=in_bytes, accumulate_bytes=accumulate, unroll=reducer.unroll)
    axes = iteration(tensor.shape, tensor.strides, dims, in_bytes=in_bytes, out_bytes=out_bytes)
    script: list[Scratch] = []
    for piece in islice(split_32_bit(axes), _MOST_PIECES):
        sizes = global_scratch(piece, kernel, device)
        if sizes is not None:
            script += [Scratch("alloc", "buffer", sizes[0]), Scratch("alloc", "semaphores", sizes[1])]
            script += frees("semaphores", "buffer")
    # Pieces of a reduction too large for 32-bit indices accumulate across launches: in the output if it can hold
    # the accumulator, else in a buffer of its own (Reduce.cuh AccumulationBuffer).
    in_output = reducer.accumulates_in_output and out_dtype not in HALF_TYPES
    if fits_32_bit(axes) or in_output or out_bytes >= accumulate:
        return tuple(script)
    outputs = tensor.numel // product(tensor.shape[dim] for dim in dims)
    return Scratch("alloc", "partial", outputs * accumulate), *script, *frees("partial")


def _rule(reducer: Reducer) -> Rule:
    def rule(call: Call) -> Script | None:
        tensor = first_tensor(call)
        if tensor is None:
            return None
        out = call.out[0] if isinstance(call.out, (list, tuple)) else call.out
        dim = None if reducer.dim_position is None else argument(call, reducer.dim_position, "dim")
        after = reduction_scratch(call.device, Layout.of(tensor), reduced_dims(tensor, dim), out.dtype, reducer)
        return Script(after=after) if after else None

    return rule


def _whole(reducer: Reducer) -> Reducer:
    return replace(reducer, dim_position=None)


def _log_sum_exp(call: Call) -> Script | None:
    """ReduceOps.cpp logsumexp_out_impl: the maxima, a full-size difference, and only then the result, its sum."""
    tensor = first_tensor(call)
    if tensor is None or not tensor.numel():
        return None
    dims = reduced_dims(tensor, argument(call, 1, "dim"))
    maxima, layout = nbytes(call.out), Layout.of(tensor)
    # ``logsumexp`` makes an empty result, which ``sum_out`` resizes.
    before = (
        Scratch("alloc", "maxima", maxima),
        *reduction_scratch(call.device, layout, dims, tensor.dtype, EXTREMUM),
        Scratch("alloc", "magnitude", maxima),
        Scratch("alloc", "infinite", call.out.numel()),
        *frees("infinite", "magnitude"),
        Scratch("alloc", "difference", nbytes(tensor)),
    )
    after = (*reduction_scratch(call.device, layout, dims, tensor.dtype, SUM), *frees("difference", "maxima"))
    return Script(before=before, after=after)


def _count_nonzero(call: Call) -> Script | None:
    """ReduceOps.cpp ``count_nonzero_cuda``: the sum of ``self != 0``."""
    tensor = call.args[0]
    if not tensor.numel():
        return None
    mask, dims = Layout.dense(tuple(tensor.shape), torch.bool), reduced_dims(tensor, argument(call, 1, "dim"))
    after = (*reduction_scratch(call.device, mask, dims, torch.int64, SUM), *frees("mask"))
    return Script(before=(Scratch("alloc", "mask", tensor.numel()),), after=after)


def _equal(call: Call) -> Script | None:
    """cuda/Equal.cpp ``cuda_equal``: ``(self == other).all()``."""
    tensor = call.args[0]
    if not tensor.numel() or tensor.shape != call.args[1].shape:
        return None
    mask = Layout.dense(tuple(tensor.shape), torch.bool)
    lines = reduction_scratch(call.device, mask, range(len(mask.shape)), torch.bool, LOGIC)
    return Script(before=(Scratch("alloc", "mask", tensor.numel()), Scratch("alloc", "all", 1), *lines))


def _named(reducer: Reducer, *names: str) -> dict[str, Rule]:
    return {f"aten.{name}": _rule(reducer) for name in names}


REDUCTION_RULES: Mapping[str, Rule] = {
    **_named(SUM, "sum.dim_IntList", "mean.dim", "prod.dim_int", "nansum.default"),
    **_named(_whole(SUM), "sum.default", "mean.default", "prod.default"),
    **_named(EXTREMUM, "amax.default", "amin.default"),
    **_named(_whole(EXTREMUM), "max.default", "min.default"),
    **_named(LOGIC, "any.dim", "any.dims", "all.dim", "all.dims"),
    **_named(_whole(LOGIC), "any.default", "all.default", "_is_any_true.default", "_is_all_true.default"),
    **_named(INDEXED_EXTREMUM, "max.dim", "min.dim", "argmax.default", "argmin.default"),
    **_named(MOMENT, "var.correction", "std.correction", "var_mean.correction", "std_mean.correction"),
    **_named(
        replace(NORM, dim_position=2),
        "linalg_vector_norm.default",
        "norm.ScalarOpt_dim",
        "norm.ScalarOpt_dim_dtype",
    ),
    **_named(_whole(NORM), "norm.Scalar", "norm.ScalarOpt_dtype"),
    **_named(BOTH_EXTREMA, "aminmax.default"),
    "aten.logsumexp.default": _log_sum_exp,
    "aten.count_nonzero.default": _count_nonzero,
    "aten.count_nonzero.dim_IntList": _count_nonzero,
    "aten.equal.default": _equal,
}
"""Op name → rule."""
