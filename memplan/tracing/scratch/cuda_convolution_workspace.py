"""How much work space cuDNN may take for a convolution: the likely size, and the most by its documented algorithms.

PyTorch runs the first plan of cuDNN's heuristics that works (aten/src/ATen/native/cudnn/Conv_v8.cpp ``try_configs``)
with the work space that the plan names, however large, and takes the next plan where that space cannot be had. Which
plan comes first only cuDNN knows. Derived, not measured, from

* NVIDIA, Convolutional Layers User's Guide, *Tensor Layouts*: tensor cores work on NHWC; NCHW tensors are transposed
  on the way; cuDNN documentation, legacy API, *Tensor Transformations*: channels are padded where they do not fill
  vectors. Half types are likely to take this way: copies of both operands and the result.
* the same documentation, ``cudnnConvolutionFwdAlgo_t`` and its backward fellows: what each algorithm supports;
* Lavin and Gray, Fast Algorithms for Convolutional Neural Networks (arXiv:1509.09308): transformed tiles of
  WINOGRAD_NONFUSED; they beat FFT for small filters, so FFT counts for larger filters alone, as FFT_TILING takes it.

Left out: the FFT of whole images, which for filters as large as their image takes a multiple of this (21 GB were seen
for 7x7 filters over 7x7 images, NVIDIA developer forum 111065), and what ``benchmark=True`` tries before it decides.
"""

from dataclasses import dataclass

import torch

from memplan.tracing.records import DeviceTraits
from memplan.tracing.scratch.cuda_shapes import FLOAT_BYTES, HALF_TYPES, ceil_div, product, round_up

_VECTOR_BYTES = 16
"""What channels are padded to: eight half numbers, four floats."""
_TENSOR_CORES = {torch.float16: (7, 0), torch.bfloat16: (8, 0), torch.float32: (8, 0)}
"""Type → least compute capability whose tensor cores convolve it (fp32 as TF32)."""
_LARGEST_TILE_BYTES = 256 * 128 * FLOAT_BYTES
"""Partial sums of one thread block: CUTLASS's largest tile of results, in float."""
_WINOGRAD_OUTPUTS = 4
"""Side of the results that one tile gives: F(4x4, 3x3) and F(4x4, 5x5)."""
_WINOGRAD_FILTERS = ((3, 3), (5, 5))
_SMALL_FILTER = 5
_FFT_SIDE = 32
"""Side of an FFT_TILING tile, and its largest filter."""
_FFT_TILE_BYTES = _FFT_SIDE * (_FFT_SIDE // 2 + 1) * 2 * FLOAT_BYTES
"""Half a spectrum of complex floats: the other half mirrors it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CudaConvolution:
    """One convolution; a transposed one is read backwards, its result as the source."""

    batch: int
    inputs: int
    """Channels of the source."""
    outputs: int
    """Channels of the result."""
    groups: int
    source: tuple[int, ...]
    """Height and width, after depth if it has one."""
    result: tuple[int, ...]
    kernel: tuple[int, ...]
    dense: bool
    """Neither stride nor dilation?"""
    channels_last: bool
    dtype: torch.dtype

    @property
    def columns(self) -> int:
        """Elements of one image as the matrix of an explicit product."""
        return self.inputs * product(self.kernel) * product(self.result)


def likely_bytes(convolution: CudaConvolution, device: DeviceTraits) -> int:
    """Copies in tensor cores' layout for half types; nothing for others."""
    return _layout_copies(convolution, device) if convolution.dtype in HALF_TYPES else 0


def most_bytes(convolution: CudaConvolution, device: DeviceTraits) -> int:
    """The most that a documented algorithm takes."""
    tensor_cores = _layout_copies(convolution, device) + device.sm_count * _LARGEST_TILE_BYTES
    explicit = convolution.columns * convolution.dtype.itemsize
    return max(tensor_cores, explicit, _winograd(convolution), _fft(convolution))


def _layout_copies(convolution: CudaConvolution, device: DeviceTraits) -> int:
    least = _TENSOR_CORES.get(convolution.dtype)
    if least is None or device.capability < least or convolution.groups == convolution.inputs > 1:
        return 0
    inputs, outputs = convolution.inputs, convolution.outputs
    item = convolution.dtype.itemsize
    per_group = inputs // convolution.groups
    images = [
        (inputs, convolution.batch * product(convolution.source)),
        (outputs, convolution.batch * product(convolution.result)),
        (per_group, outputs * product(convolution.kernel)),
    ]
    vector = _VECTOR_BYTES // item
    return item * sum(
        round_up(channels, vector) * pixels
        for channels, pixels in images
        if channels % vector or not convolution.channels_last
    )


def _winograd(convolution: CudaConvolution) -> int:
    if not convolution.dense or convolution.kernel not in _WINOGRAD_FILTERS:
        return 0
    tiles = convolution.batch * product(ceil_div(side, _WINOGRAD_OUTPUTS) for side in convolution.result)
    return FLOAT_BYTES * _transformed(convolution, tiles) * (_WINOGRAD_OUTPUTS + convolution.kernel[0] - 1) ** 2


def _fft(convolution: CudaConvolution) -> int:
    kernel = convolution.kernel
    if not convolution.dense or len(kernel) != 2 or not _SMALL_FILTER < max(kernel) <= _FFT_SIDE:
        return 0
    steps = [_FFT_SIDE - size + 1 for size in kernel]
    sides = zip(convolution.result, steps, strict=True)
    tiles = convolution.batch * product(ceil_div(side, step) for side, step in sides)
    return _FFT_TILE_BYTES * _transformed(convolution, tiles)


def _transformed(convolution: CudaConvolution, tiles: int) -> int:
    """Transformed tiles of source, result and filters."""
    filters = convolution.inputs // convolution.groups * convolution.outputs
    return (convolution.inputs + convolution.outputs) * tiles + filters
