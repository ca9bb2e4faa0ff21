"""Scratch of PyTorch's own convolutions on CPU, which serve types and sizes that oneDNN does not.

Follows aten/src/ATen/native: ConvolutionMM2d.cpp and ConvolutionMM3d.cpp (patches of the whole batch as columns),
NaiveConvolutionTranspose2d.cpp and 3d.cpp, NaiveDilatedConvolution.cpp (columns of one image), and Convolution.cpp
``_convolution``, which runs groups one after the other and joins what they leave (volumes have groups of their own).
Measured with torch 2.13.0, November 2026.
"""

from collections.abc import Iterable
from dataclasses import replace

import torch

from memplan.tracing.scratch.cpu_convolution_shape import CpuConvolution
from memplan.tracing.scratch.cpu_shapes import enlarge
from memplan.tracing.scratch.rules import Scratch, Script

_IMAGE, _VOLUME = 2, 3
"""Dimensions of an image, of a volume."""


def as_it_wants(conv: CpuConvolution) -> CpuConvolution:
    """The convolution as these kernels want it: images may be channels-last, volumes may not (ConvUtils.h)."""
    return replace(conv, channels_last=conv.channels_last and len(conv.kernel) == _IMAGE)


def forward(conv: CpuConvolution, out: torch.Tensor) -> Script:
    """The convolution itself.

    Args:
        conv: The convolution.
        out: Its fake result, whose storage may be larger than it is.
    """
    if not takes_groups_apart(conv):
        if is_transposed_volume(conv):
            enlarge(out, source_bytes(conv))
        return entered(_forward_of_one(conv), frozenset({"result"}))
    one = of_one_group(conv)
    storage = max(result_bytes(one), source_bytes(one) if is_transposed_volume(one) else 0)
    lines = (
        *held({"other results": (conv.groups - 1) * storage, "source": group_source_bytes(conv)}),
        *_forward_of_one(one),
        *freed("source"),
        *held({"joined": result_bytes(conv)}),
    )
    return entered(lines, frozenset({"joined"}))


def _forward_of_one(conv: CpuConvolution) -> tuple[Scratch, ...]:
    result, columns = {"result": result_bytes(conv)}, {"columns": _forward_columns(conv)}
    if is_transposed_volume(conv):
        # The result begins as large as the source; what is too small for it is given back.
        fits = source_bytes(conv) >= result_bytes(conv)
        first = held({"result": source_bytes(conv)}) if fits else held({"too small": source_bytes(conv)} | result)
        ones = {"ones": result_bytes(conv) // conv.batch // conv.outputs if conv.bias else 0}
        return (*first, *freed("too small"), *held(columns | ones), *freed("ones", "columns"))
    if conv.transposed or is_dilated(conv):
        return (*held(result | columns), *freed("columns"))
    return (*held(columns | result), *freed("columns"))


def _forward_columns(conv: CpuConvolution) -> int:
    if conv.transposed:
        images = 1 if is_transposed_volume(conv) else conv.batch
        return images * patches_bytes(conv)
    if conv.pointwise and not conv.strided and not conv.dilated:
        return 0
    return (1 if is_dilated(conv) else conv.batch) * patches_bytes(conv)


def patches_bytes(conv: CpuConvolution) -> int:
    """One image unrolled; a transposed convolution unrolls its result."""
    channels, area = (conv.outputs, conv.source_area) if conv.transposed else (conv.inputs, conv.result_area)
    return channels * conv.taps * area * conv.itemsize


def takes_groups_apart(conv: CpuConvolution) -> bool:
    """Are groups run one after the other? The kernel of volumes takes them at once."""
    return conv.groups > 1 and (len(conv.kernel) != _VOLUME or conv.transposed or conv.dilated)


def is_dilated(conv: CpuConvolution) -> bool:
    """Is it the dilated kernel's (Convolution.cpp ``_select_conv_backend``)? Transposed ones have theirs."""
    return conv.dilated and not conv.transposed


def is_transposed_volume(conv: CpuConvolution) -> bool:
    """Is it the kernel's of transposed volumes?"""
    return conv.transposed and len(conv.kernel) == _VOLUME


def of_one_group(conv: CpuConvolution) -> CpuConvolution:
    """What is run for each group."""
    return replace(conv, inputs=conv.inputs // conv.groups, outputs=conv.outputs // conv.groups, groups=1)


def group_source_bytes(conv: CpuConvolution) -> int:
    """What cutting one group's channels out copies (Convolution.cpp ``subtensor``): nothing of a single dense image."""
    return 0 if conv.batch == 1 and not conv.channels_last else source_bytes(conv) // conv.groups


def source_bytes(conv: CpuConvolution) -> int:
    """Bytes of the source."""
    return conv.batch * conv.inputs * conv.source_area * conv.itemsize


def result_bytes(conv: CpuConvolution) -> int:
    """Bytes of the result."""
    return conv.batch * conv.outputs * conv.result_area * conv.itemsize


def held(sizes: dict[str, int]) -> tuple[Scratch, ...]:
    """Allocate these in order."""
    return tuple(Scratch("alloc", key, size) for key, size in sizes.items())


def freed(*keys: str) -> tuple[Scratch, ...]:
    """Free these in order."""
    return tuple(Scratch("free", key) for key in keys)


def entered(lines: Iterable[Scratch], results: frozenset[str]) -> Script:
    """The script of what a kernel does, its results among it, which the trace enters all at once.

    Args:
        lines: Allocations and frees; empty ones count for nothing.
        results: Keys of results: until the last of them is made, others stand in for them.
    """
    made = {line.key for line in lines if line.nbytes}
    kept = [line for line in lines if line.key in made and (line.nbytes or line.action == "free")]
    places = [place for place, line in enumerate(kept) if line.key in results]
    first = max(places, default=-1) + 1
    stand_ins = freed(*(kept[place].key for place in reversed(places)))
    return Script(before=(*kept[:first], *stand_ins), after=tuple(kept[first:]))
