"""Scratch of running sums, and of what is built on them: ``nonzero``, masks, repeats, draws.

Follows aten/src/ATen/native/cuda: ScanUtils.cuh (``scan_dim``), ReduceOps.cpp (``impl_func_cum_ops``), Nonzero.cu
(``nonzero_cuda_out_impl``), Indexing.cu and IndexKernel.cpp (``masked_select``, ``masked_scatter__cuda``),
IndexKernel.cu (``launch_masked_scatter_kernel``), Repeat.cu, and of aten/src/ATen/native Distributions.cpp
(``multinomial_out``) with cuda/MultinomialKernel.cu; read at main of 2026. What one-number checks of the data allocate
is left out.
"""

from collections.abc import Mapping

import torch

from memplan.tracing.records import DeviceTraits
from memplan.tracing.scratch.cuda_cub import reduction_sums, selection_states, tile_states
from memplan.tracing.scratch.cuda_reduction import INDEXED_EXTREMUM, reduction_scratch
from memplan.tracing.scratch.cuda_shapes import (
    FLOAT_BYTES,
    INDEX_BYTES,
    Layout,
    allocations,
    argument,
    copy_if_strided,
    frees,
    nbytes,
)
from memplan.tracing.scratch.rules import Call, Rule, Scratch, Script


def running(call: Call) -> Script | None:
    """``cumsum`` and its kin: a copy in the result's type, and CUB's states where there is but one row."""
    source, dtype = call.args[0], call.out.dtype
    if not source.dim() or not source.numel():
        return None
    layout = Layout.of(source)
    if source.dtype != dtype:
        layout = layout._replace(dtype=dtype)
        after: tuple[Scratch, ...] = (Scratch("alloc", "cast", layout.nbytes),)
    else:
        after = copy_if_strided("source", layout)
    if source.shape[argument(call, 1, "dim")] == source.numel():
        after += (tile_states("scan", source.numel(), dtype.itemsize),)
    return Script(after=after) if after else None


def running_extremum(call: Call) -> Script | None:
    """``cummax(self, dim)``: a strided input is copied."""
    copies = copy_if_strided("source", call.args[0])
    return Script(before=copies) if copies else None


def selection_scratch(mask: Layout, device: DeviceTraits) -> tuple[Scratch, ...]:
    """What ``nonzero`` takes before its result: a dense copy, and how many there are."""
    if not mask.numel:
        return ()
    count = Scratch("alloc", "count", FLOAT_BYTES)
    sums = reduction_sums("sums", mask.numel, FLOAT_BYTES, device)
    return (*copy_if_strided("dense mask", mask), count, sums, *frees("sums"))


def nonzero(call: Call) -> Script | None:
    """``nonzero(self)``: positions are counted, and then selected."""
    mask = Layout.of(call.args[0])
    lines = selection_scratch(mask, call.device)
    return Script(before=lines, after=(_selection(mask, call.device),)) if lines else None


def _selection(mask: Layout, device: DeviceTraits) -> Scratch:
    return selection_states("selection", mask.numel, device)


def masked_select(call: Call) -> Script | None:
    """``masked_select(self, mask)`` is an index by the mask's positions, one for each dimension."""
    shape: torch.Size = torch.broadcast_shapes(call.args[0].shape, call.args[1].shape)  # type: ignore[no-untyped-call]
    mask = Layout.of(call.args[1].expand(shape))
    return selected(mask, call.out.numel(), call.device)


def selected(mask: Layout, count: int, device: DeviceTraits) -> Script | None:
    """An index by a mask: its positions, which ``nonzero`` finds first, live until the result is filled."""
    lines = selection_scratch(mask, device)
    positions = Scratch("alloc", "positions", count * len(mask.shape) * INDEX_BYTES)
    held = ["selection", *(line.key for line in reversed(lines) if line.action == "alloc" and line.key != "sums")]
    return Script(before=(*lines, positions, _selection(mask, device), *frees(*held))) if lines else None


def masked_scatter(call: Call) -> Script | None:
    """``masked_scatter(self, mask, source)``: which element of the source goes where, as a running sum of the mask."""
    mask, source, elements = call.args[1], call.args[2], call.out.numel()
    if not elements:
        return None
    return Script(
        after=(
            Scratch("alloc", "running sum", elements * INDEX_BYTES),
            *copy_if_strided("dense mask", Layout.of(mask.expand(call.out.shape))),
            tile_states("scan", elements, INDEX_BYTES),
            *frees("scan"),
            *copy_if_strided("dense source", source),
        )
    )


def masked_scatter_backward(call: Call) -> Script | None:
    """``masked_scatter_backward(grad, mask, sizes)``: what the mask selects, taken to be all that the source had."""
    gradient, mask = call.args[:2]
    return selected(Layout.of(mask.expand(gradient.shape)), call.out.numel(), call.device)


def repeats(call: Call) -> Script | None:
    """``repeat_interleave(repeats)``: their running sum."""
    counts = call.args[0]
    if not counts.numel():
        return None
    states = tile_states("scan", counts.numel(), INDEX_BYTES)
    ends = Scratch("alloc", "ends", counts.numel() * INDEX_BYTES)
    return Script(before=(*copy_if_strided("counts", counts), ends, states, *frees("scan")))


def multinomial(call: Call) -> Script | None:
    """``multinomial(self, num_samples, replacement)``: draws race in a tensor of the probabilities' size."""
    weights, samples = call.args[0], argument(call, 1, "num_samples")
    size = nbytes(weights)
    if argument(call, 2, "replacement", default=False) and samples > 1:
        return Script(after=allocations((("distribution", size), ("normalised", size), ("running sum", size))))
    races = Layout.dense(tuple(weights.shape), weights.dtype)
    last = {weights.dim() - 1}
    winner = reduction_scratch(call.device, races, last, torch.int64, INDEXED_EXTREMUM) if samples == 1 else ()
    return Script(after=(Scratch("alloc", "races", size), *winner))


SCAN_RULES: Mapping[str, Rule] = {
    **dict.fromkeys(("aten.cumsum.default", "aten.cumprod.default", "aten._logcumsumexp.default"), running),
    **dict.fromkeys(("aten.cummax.default", "aten.cummin.default"), running_extremum),
    **dict.fromkeys(("aten._cummax_helper.default", "aten._cummin_helper.default"), running_extremum),
    "aten.logcumsumexp.default": running,
    "aten.nonzero.default": nonzero,
    "aten.masked_select.default": masked_select,
    "aten.masked_scatter.default": masked_scatter,
    "aten.masked_scatter_.default": masked_scatter,
    "aten.masked_scatter_backward.default": masked_scatter_backward,
    "aten.repeat_interleave.Tensor": repeats,
    "aten.multinomial.default": multinomial,
}
"""Op name → rule."""
