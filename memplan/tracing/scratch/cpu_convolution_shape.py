"""One convolution on CPU: who computes it, and how large its tensors are in oneDNN's layouts.

Measured with torch 2.13.0 (oneDNN 3.12) on AVX-512 (AMD EPYC), one thread, November 2026.
"""

import os
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

import torch

from memplan.tracing.scratch.cpu_shapes import PAGE_BYTES, lanes, product, round_up
from memplan.tracing.scratch.layouts import memory_format
from memplan.tracing.scratch.rules import Call, Scratch

SCRATCH_ALIGNMENT = 128
"""What oneDNN's scratchpad adds to each of its parts (src/common/memory_tracking.hpp default_alignment)."""
AVX2_LANES = 8
"""Channels in one block of the AVX2 kernels, which serve where AVX-512 ones do not."""
_AVX2_PIXELS = 3
"""Pixels of a row that the AVX2 kernel computes at once (src/cpu/x64/jit_avx2_conv_kernel_f32.cpp ``ur_w``)."""
_CACHE, _LEAST_CACHE = "SC_LEVEL2_CACHE_SIZE", 512 * 1024
"""Where the size of a core's second cache stands, and what is taken elsewhere: that of the machine measured."""
_WIDEST_STRIDED = 7
"""Weights in a row of a filter that AVX2's kernel takes with strides and a margin."""
_STRIDED_BACKWARD_PAGES = 4
"""Buffers of brgemm's strided backward beside its copy of the gradient and its list of products (measured)."""
_BYTES_OF_PRODUCT = 40
"""In that list (``key_brgemm_primitive_batch``, of ``brgemm_batch_element_t``; measured)."""
_NARROW_OUTPUT = 32
"""Channels that copy has at least (measured)."""
_SMALL_INPUT = 20_480
"""Below it a single image stays with PyTorch's own kernel (Convolution.cpp ConvParams::use_mkldnn)."""
_SMALL_BATCH = 16
"""Below it 1x1 filters stay there too, where there is one thread (same place)."""


_VOLUME = 3
"""Dimensions of a volume."""

_ONEDNN_TYPES: dict[torch.dtype, Callable[[], bool]] = {
    torch.float32: lambda: True,
    torch.bfloat16: lambda: bool(torch.ops.mkldnn._is_mkldnn_bf16_supported()),
    torch.float16: lambda: bool(torch.ops.mkldnn._is_mkldnn_fp16_supported()),
}
"""Type → does this machine's oneDNN compute in it (Convolution.cpp mkldnn_bf16_device_check)?"""


@dataclass(frozen=True, slots=True, kw_only=True)
class CpuConvolution:
    """One convolution, transposed or not: sources have ``inputs`` channels, results ``outputs``."""

    batch: int
    inputs: int
    outputs: int
    groups: int
    source_area: int
    """Pixels of one source channel."""
    result_area: int
    """Pixels of one result channel."""
    slices: int
    """Depth of what is unrolled, the result or, transposed, the source; 1 without a third dimension."""
    arriving_area: int
    """Pixels of a channel of what a gradient of the source is made of, with the margins that its filters reach to."""
    ragged_row: int
    """Elements of a channel in which rows of that gradient are joined that strides do not divide; 0 if they do."""
    source_rows: int
    """Length of the source's first dimension."""
    result_rows: int
    """Length of the result's first dimension."""
    source_row: int
    """Length of the source's last dimension."""
    result_row: int
    """Length of the result's last dimension."""
    kernel: tuple[int, ...]
    strided: bool
    stride_area: int
    """Pixels of the source per pixel of the result."""
    row_step: int
    """Pixels that a filter moves along a row."""
    dilated: bool
    padded: bool
    margin: int
    """Padding before each row."""
    overhang: int
    """How far filters reach beyond a row of a gradient, which has a margin of its own."""
    transposed: bool
    itemsize: int
    channels_last: bool
    bias: bool

    @property
    def taps(self) -> int:
        """Weights per pair of channels."""
        return product(self.kernel)

    @property
    def layout(self) -> torch.memory_format:
        """What its tensors are brought to."""
        if not self.channels_last:
            return torch.contiguous_format
        return torch.channels_last_3d if len(self.kernel) == _VOLUME else torch.channels_last

    @property
    def pointwise(self) -> bool:
        """A 1x1 filter without padding?"""
        return self.taps == 1 and not self.padded and self.groups == 1 and not self.transposed

    @property
    def by_pointwise_kernel(self) -> bool:
        """Does a kernel for 1x1 filters compute it? A strided one must tile the source (``rtus_prepare``)."""
        return self.pointwise and self.source_area == self.result_area * self.stride_area

    @property
    def depthwise(self) -> bool:
        """One filter per channel?"""
        return self.groups > 1 and self.groups == self.inputs == self.outputs

    @property
    def flat_source(self) -> bool:
        """Do oneDNN's "first convolution" kernels read the few source channels as they lie?"""
        return self.groups == 1 and self.inputs < lanes() and not self.by_pointwise_kernel


def parse(
    source: torch.Tensor, weight: torch.Tensor, result: torch.Tensor, call: Call, *, offset: int, bias: bool
) -> CpuConvolution:
    """Read a call of ``convolution`` (offset 0) or ``convolution_backward`` (offset 1).

    Args:
        source: What is convolved.
        weight: Filters.
        result: The convolution's result, or the gradient of that shape.
        call: The call.
        offset: Where its arguments stand relative to those of ``convolution``.
        bias: Is there a bias, or a gradient of one?
    """
    stride, padding, dilation = (call.args[position + offset] for position in (3, 4, 5))
    groups, transposed = call.args[8 + offset], bool(call.args[6 + offset])
    outer, inner = (source, result) if transposed else (result, source)
    return CpuConvolution(
        batch=source.shape[0],
        inputs=source.shape[1],
        outputs=result.shape[1],
        groups=groups,
        source_area=product(source.shape[2:]),
        result_area=product(result.shape[2:]),
        slices=(source if transposed else result).shape[2] if result.ndim == 5 else 1,
        arriving_area=_arriving_area((outer.shape[2:], inner.shape[2:], weight.shape[2:], stride, padding, dilation)),
        ragged_row=stride[-1] * round_up(inner.shape[-1], stride[-1]) if inner.shape[-1] % stride[-1] else 0,
        source_rows=source.shape[2],
        result_rows=result.shape[2],
        source_row=source.shape[-1],
        result_row=result.shape[-1],
        kernel=tuple(weight.shape[2:]),
        strided=any(step != 1 for step in stride),
        stride_area=product(stride),
        row_step=stride[-1],
        dilated=any(step != 1 for step in dilation),
        padded=any(step != 0 for step in padding),
        margin=padding[-1],
        overhang=(weight.shape[-1] - 1) * dilation[-1] - padding[-1],
        transposed=transposed,
        itemsize=source.element_size(),
        channels_last=lies_channels_last(source) or lies_channels_last(weight),
        bias=bias,
    )


def lies_channels_last(tensor: torch.Tensor) -> bool:
    """Does a tensor ask for channels-last images (ConvUtils.h mkldnn_conv_use_channels_last)? Source or weight may."""
    return memory_format(tensor) is not torch.contiguous_format


def by_onednn(source: torch.Tensor, conv: CpuConvolution) -> bool:
    """Does oneDNN compute it (Convolution.cpp ConvParams::use_mkldnn)?"""
    available: bool = torch.backends.mkldnn.is_available()  # type: ignore[no-untyped-call]
    if not available or source.dtype not in _ONEDNN_TYPES:
        return False
    if source.dtype is not torch.float32:
        return _ONEDNN_TYPES[source.dtype]()
    pays = (
        conv.strided
        or conv.dilated
        or conv.batch >= _SMALL_BATCH
        or any(side != 1 for side in conv.kernel[-2:])
        or torch.get_num_threads() > 1
    )
    wide = len(conv.kernel) > 1 and all(side > 3 for side in conv.kernel[-2:])
    large = conv.batch * conv.inputs * conv.source_area > _SMALL_INPUT
    return pays and (conv.groups > 1 or wide or conv.batch > 1 or large)


def is_volume(conv: CpuConvolution) -> bool:
    """Has it three dimensions? AVX2's kernel of single channels knows but two (src/cpu/x64/jit_uni_dw_conv*.cpp)."""
    return len(conv.kernel) == _VOLUME


def block(conv: CpuConvolution) -> int:
    """Channels that oneDNN lays out together; 1 where it falls back to a matrix product on plain layouts."""
    if conv.groups == 1 or (conv.depthwise and not (is_volume(conv) and lanes() == AVX2_LANES)):
        return lanes()
    for width in _GROUP_WIDTHS[lanes()]:
        if conv.inputs // conv.groups % width == 0 and conv.outputs // conv.groups % width == 0:
            return width
    return 1


def weights_block(conv: CpuConvolution) -> int:
    """The same for gradients of weights: of channels-last images AVX2's kernel takes groups of any width but three.

    Source: src/cpu/x64/jit_avx2_conv_kernel_f32.cpp, init_conf of weights (``ic_tail``, ``oc_tail``, ``flat``).
    """
    takes_tails = conv.channels_last and lanes() == AVX2_LANES and not conv.depthwise
    entering = conv.outputs if conv.transposed else conv.inputs
    return AVX2_LANES if takes_tails and entering // conv.groups != _FLAT_GROUP else block(conv)


_FLAT_GROUP = 3
"""Channels that this kernel would read as they lie, which it does not do in groups (measured)."""
_GROUP_WIDTHS = {16: (16, 8, 4), AVX2_LANES: (AVX2_LANES,)}
"""Channels in one block of this machine → blocks that kernels for groups know (measured on AVX-512 and on AVX2)."""


def image_bytes(conv: CpuConvolution, channels: int, area: int, width: int) -> int:
    """A batch of images in blocks of ``width`` channels."""
    return conv.batch * round_up(channels, width) * area * conv.itemsize


def filters_bytes(conv: CpuConvolution, inputs_block: int, outputs_block: int) -> int:
    """Weights in blocks of input and output channels."""
    if conv.depthwise:
        return round_up(conv.groups, outputs_block) * conv.taps * conv.itemsize
    per_group = round_up(conv.inputs // conv.groups, inputs_block) * round_up(
        conv.outputs // conv.groups, outputs_block
    )
    return conv.groups * per_group * conv.taps * conv.itemsize


def columns_at_most(lines: Iterable[Scratch]) -> tuple[Scratch, ...]:
    """Lines whose columns may be fewer: filters as large as an image were met in blocks of a part of the result."""
    return tuple(
        line._replace(most=line.nbytes) if line.key == "columns" and line.most is None else line for line in lines
    )


def columns_bytes(conv: CpuConvolution) -> int:
    """Unrolled source patches of one image (of one slice, where there are several) and group, per thread."""
    # A transposed convolution unrolls its result.
    channels, area = (conv.outputs, conv.source_area) if conv.transposed else (conv.inputs, conv.result_area)
    unrolled = channels // conv.groups * conv.taps * (area // conv.slices) * conv.itemsize
    # Its scratchpad holds that of the convolution which it turns around.
    nested = SCRATCH_ALIGNMENT if conv.transposed else 0
    return torch.get_num_threads() * unrolled + SCRATCH_ALIGNMENT + nested


def cut_to_cache(lines: Iterable[Scratch]) -> tuple[Scratch, ...]:
    """Lines whose columns go into a core's cache block by block, so that what they take is known between bounds.

    oneDNN does so where a source is unrolled for its own convolution (src/cpu/gemm_convolution_utils.cpp
    ``init_conf``); measured on AVX2: between a half and all of the second cache.
    """
    cache = os.sysconf(_CACHE) if _CACHE in os.sysconf_names else _LEAST_CACHE
    return tuple(
        line._replace(nbytes=cache, most=line.nbytes) if line.key == "columns" and line.nbytes > cache else line
        for line in lines
    )


def reduced_source_bytes(conv: CpuConvolution) -> int:
    """A strided 1x1 kernel gathers the pixels that it reads, per thread.

    oneDNN's src/cpu/x64/jit_uni_1x1_conv_utils.hpp books ``key_conv_rtus_space`` for ``rtus_driver_t``.
    """
    if not (conv.by_pointwise_kernel and conv.strided):
        return 0
    gathered = round_up(conv.inputs, lanes()) * conv.result_area * conv.itemsize
    return torch.get_num_threads() * gathered + SCRATCH_ALIGNMENT


def refused_by_avx2(conv: CpuConvolution, *, to_source: bool) -> bool:
    """Do rows have wider margins than AVX2's kernels compute at once, or filters that are too wide for their strides?

    Then it is a product of matrices.

    Source: src/cpu/x64/jit_avx2_conv_kernel_f32.cpp ``init_conf`` (``l_pad``, ``l_overflow`` against ``ur_w``, which is
    no more than a row); how many pixels a gradient's kernel takes at most depends on channels, and was not met.

    Args:
        conv: The convolution.
        to_source: Is it the pass for the gradient of the source? That of a transposed one is a plain convolution.
    """
    if lanes() != AVX2_LANES:
        return False
    if too_wide_for_strides(conv) and not (to_source or conv.transposed):
        return True
    row = conv.source_row if to_source else conv.result_row
    return conv.margin > min(_AVX2_PIXELS, row) if to_source == conv.transposed else conv.overhang > row


def too_wide_for_strides(conv: CpuConvolution) -> bool:
    """Has it strides, a margin, and filters wider than AVX2's kernels take then (``init_conf`` there; measured)?"""
    return conv.kernel[-1] > _WIDEST_STRIDED and conv.padded and conv.strided


def padded_bias_bytes(conv: CpuConvolution, width: int) -> int:
    """A bias is padded to whole blocks of channels, in each group."""
    groups = 1 if conv.depthwise else conv.groups
    if not conv.bias or conv.outputs // groups % width == 0:
        return 0
    return groups * round_up(conv.outputs // groups, width) * conv.itemsize + SCRATCH_ALIGNMENT


def by_small_products(conv: CpuConvolution) -> bool:
    """Does brgemm compute it, if it is the strided gradient of a source (src/cpu/x64/jit_brgemm_conv_bwd_utils.cpp)?

    Of groups that is known on AVX2 alone: where more channels of each arrive than are in a block (measured).
    """
    arriving = conv.inputs if conv.transposed else conv.outputs
    return conv.groups == 1 or (lanes() == AVX2_LANES and arriving // conv.groups > AVX2_LANES)


def products_bytes(conv: CpuConvolution) -> int:
    """The list of small products that brgemm computes at once, one a weight: whole pages, and then whole elements."""
    return round_up(round_up(conv.taps * _BYTES_OF_PRODUCT, PAGE_BYTES), _BYTES_OF_PRODUCT)


def strided_backward_bytes(conv: CpuConvolution) -> int:
    """One image's gradient, kept by oneDNN's strided backward (src/cpu/x64/jit_brgemm_conv_bwd_strided.cpp)."""
    channels, area = (conv.inputs, conv.source_area) if conv.transposed else (conv.outputs, conv.result_area)
    if lanes() == AVX2_LANES:
        # The copy has margins, and whole pages of elements (jit_brgemm_conv_bwd_utils.cpp ``inp_buffer_size``).
        leaving = conv.outputs if conv.transposed else conv.inputs
        copy = round_up(conv.arriving_area * channels, PAGE_BYTES) * conv.itemsize
        if conv.ragged_row:
            copy += round_up(conv.ragged_row * leaving, PAGE_BYTES) * conv.itemsize + PAGE_BYTES
        return copy + _STRIDED_BACKWARD_PAGES * PAGE_BYTES + products_bytes(conv)
    copy = area * max(channels, _NARROW_OUTPUT) * conv.itemsize
    return round_up(copy, PAGE_BYTES) + (_STRIDED_BACKWARD_PAGES + 1) * PAGE_BYTES


def _arriving_area(conv: tuple[Sequence[int], ...]) -> int:
    """Pixels of a gradient and the margins that the outermost filters reach to, per channel.

    Args:
        conv: Per dimension: size of the gradient, of the source, of the filter; stride, padding, dilation.
    """
    area = 1
    for arriving, size, side, stride, padding, dilation in zip(*conv, strict=True):
        reach = (side - 1) * dilation
        behind = (arriving - 1) * stride + reach + 1 - size - padding
        area *= arriving + max(0, (reach - padding) // stride) + max(0, (reach - behind) // stride)
    return area
