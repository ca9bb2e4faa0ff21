"""How much work space cuDNN may take for a convolution: the likely size, and the most by its documented algorithms.

PyTorch runs the first plan of cuDNN's heuristics that works (aten/src/ATen/native/cudnn/Conv_v8.cpp ``try_configs``)
with the work space that the plan names, however large, and takes the next plan where that space cannot be had. Which
plan comes first only cuDNN knows. The likely size was measured on one card (``MEASURED``): an H100 with cuDNN 9.19
under torch 2.11 (2026-11-23, ``benchmarks/gpu/convolutions.py`` has the calls). The rules were drawn from ResNet-50's
calls and four other networks' first layers. Convolutions of fp32 on other cards' tensor cores are taken to be run as
there, since timm's models on an A100 show it (``benchmarks/results/timm_models.txt``; a dozen of its convolutional nets
were looked at before). Filters of 3x3 without tensor cores take what a Turing card took (six convolutions of
``benchmarks/cuda_streams/counterfactuals.py``, to the byte): a copy of them, the filters
as Winograd's F(2x2, 3x3) multiplies them, and a number for each output. Beyond, sizes are derived, as the most is
everywhere, from

* NVIDIA, Convolutional Layers User's Guide, *Tensor Layouts*: tensor cores work on NHWC; NCHW tensors are transposed
  on the way; cuDNN documentation, legacy API, *Tensor Transformations*: channels are padded where they do not fill
  vectors. Half types are likely to take this way: copies of both operands and the result.
* the same documentation, ``cudnnConvolutionFwdAlgo_t`` and its backward fellows: what each algorithm supports;
* Lavin and Gray, Fast Algorithms for Convolutional Neural Networks (arXiv:1509.09308): transformed tiles of
  WINOGRAD_NONFUSED; they beat FFT for small filters, so FFT counts for larger filters alone, as FFT_TILING takes it.

Left out: the FFT of whole images, which for filters as large as their image takes a multiple of this (21 GB were seen
for 7x7 filters over 7x7 images, NVIDIA developer forum 111065), and what ``benchmark=True`` tries before it decides.
"""

from dataclasses import dataclass, replace
from typing import Final, Literal

import torch

from memplan.tracing.records import DeviceTraits
from memplan.tracing.scratch.cuda_shapes import FLOAT_BYTES, HALF_TYPES, ceil_div, product, round_up

Purpose = Literal["result", "source", "filters"]
"""What a call computes: the convolution, or one of its two gradients."""
MEASURED: Final = (9, 0)
"""Compute capability of the card on which cuDNN was watched."""
_PLAN_BYTES = 16
"""What was asked for beyond the copies."""
_DIRECT_INPUTS = 4
_DIRECT_FILTER = 3
"""Up to so many channels and so large filters, fp32 kernels read NCHW images as they are."""
_POINTWISE_ALIGNMENT = {"result": 8, "source": 8, "filters": 16}
"""Bytes of which an image's channel must be a multiple for 1x1 filters to be multiplied with images as they lie."""
_LEAST_REDUCTION = {torch.float32: 1536, torch.float16: 6144, torch.bfloat16: 6144}
"""Pixels that a share of a split reduction has at least."""
_FEW_PRODUCTS, _LEAST_INPUTS, _LEAST_OUTPUTS = 512, 8, 64
"""Of an fp32 convolution whose results were not copied."""
_TILE = 128
"""Side of a tile of the filters' gradient: tiles that leave multiprocessors idle are split along the pixels."""
_VECTOR_BYTES = 16
"""What channels are padded to: eight half numbers, four floats."""
_TENSOR_CORES = {torch.float16: (7, 0), torch.bfloat16: (8, 0), torch.float32: (8, 0)}
"""Type → least compute capability whose tensor cores convolve it (fp32 as TF32)."""
_LARGEST_TILE_BYTES = 256 * 128 * FLOAT_BYTES
"""Partial sums of one thread block: CUTLASS's largest tile of results, in float."""
_WINOGRAD_OUTPUTS = 4
"""Side of the results that one tile gives: F(4x4, 3x3) and F(4x4, 5x5)."""
_WINOGRAD_FILTERS = ((3, 3), (5, 5))
_TURNED, _TURNED_TILE = (3, 3), 16
"""Filters, and the numbers that F(2x2, 3x3) makes of one."""
_TURNED_INPUTS, _TURNED_OUTPUTS = 4, 32
"""What channels were filled up to; 30 inputs to 32, which 2 and 8 would give as well."""
_SMALL_FILTER = 5
_FFT_SIDE = 32
"""Side of an FFT_TILING tile, and its largest filter."""
_FFT_CHANNELS = 64
"""What channels were padded to, as far as was seen."""
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
    purpose: Purpose = "result"
    tf32: bool = True
    """May tensor cores round fp32 numbers (``torch.backends.cudnn.allow_tf32``)?"""

    @property
    def pointwise(self) -> bool:
        """Is it a product of each pixel's channels?"""
        return product(self.kernel) == 1 and self.source == self.result

    @property
    def filters(self) -> int:
        """Elements of all filters."""
        return self.inputs // self.groups * self.outputs * product(self.kernel)

    @property
    def columns(self) -> int:
        """Elements of one image as the matrix of an explicit product."""
        return self.inputs * product(self.kernel) * product(self.result)


def likely_bytes(convolution: CudaConvolution, device: DeviceTraits) -> int:
    """Copies in tensor cores' layout; without these, small filters as they are multiplied."""
    if convolution.dtype in HALF_TYPES:
        is_known = device.capability == MEASURED and convolution.groups == 1 and _on_tensor_cores(convolution, device)
        return _as_measured(convolution, device) if is_known else _layout_copies(convolution, device)
    if convolution.dtype is not torch.float32 or convolution.groups > 1:
        return 0
    return _as_measured(convolution, device) if _on_tensor_cores(convolution, device) else _turned_filters(convolution)


def most_bytes(convolution: CudaConvolution, device: DeviceTraits) -> int:
    """The most that a documented algorithm takes."""
    vector = _VECTOR_BYTES // convolution.dtype.itemsize
    if convolution.inputs % vector or convolution.outputs % vector:
        # On an H200 what lay in the right layout was copied, too, where the channels of the other did not fill vectors.
        copies = _layout_copies(replace(convolution, channels_last=False), device)
    else:
        copies = _layout_copies(convolution, device)
    tensor_cores = copies + device.sm_count * _LARGEST_TILE_BYTES
    explicit = convolution.columns * convolution.dtype.itemsize
    sums = _image_sums(convolution) if convolution.pointwise and convolution.purpose == "filters" else 0
    spectra = max(_fft(convolution), copies + _fft_of_filters(convolution))
    return max(tensor_cores, explicit, sums, spectra, _winograd(convolution), _turned_filters(convolution))


def _as_measured(convolution: CudaConvolution, device: DeviceTraits) -> int:
    purpose, item, is_float = convolution.purpose, convolution.dtype.itemsize, convolution.dtype is torch.float32
    small = convolution.inputs <= _DIRECT_INPUTS and max(convolution.kernel) <= _DIRECT_FILTER
    if is_float and small and not convolution.channels_last and purpose != "source":
        return 0
    # Filters of 1x1 lie in both layouts alike; fp32 channels are not padded.
    several = product(convolution.kernel) > 1
    copies = _copies(convolution, _VECTOR_BYTES // item, padded=not is_float, filters=several)
    copies += _PLAN_BYTES if copies else 0
    if convolution.pointwise and not convolution.channels_last:
        lies_well = product(convolution.source) * item % _POINTWISE_ALIGNMENT[purpose] == 0
        if lies_well and purpose != "filters":
            return 0
        if lies_well and _image_sums(convolution) <= copies:
            return _image_sums(convolution)
    if is_float and _writes_as_wanted(convolution):
        pixels = convolution.batch * product(convolution.source)
        return item * (convolution.inputs * pixels + convolution.filters) + _PLAN_BYTES
    return copies + (_split_sums(convolution, device) if purpose == "filters" else 0)


def _writes_as_wanted(convolution: CudaConvolution) -> bool:
    """Few products for each result: a copy of the results would cost more than a kernel that writes them as NCHW."""
    products = convolution.inputs * product(convolution.kernel)
    wide = convolution.inputs >= _LEAST_INPUTS and convolution.outputs >= _LEAST_OUTPUTS
    return convolution.purpose == "result" and not convolution.channels_last and wide and products < _FEW_PRODUCTS


def _image_sums(convolution: CudaConvolution) -> int:
    """The filters' gradient of each image, before they are added."""
    return convolution.batch * convolution.filters * FLOAT_BYTES


def _split_sums(convolution: CudaConvolution, device: DeviceTraits) -> int:
    """The filters' gradient of each share of the pixels, before they are added."""
    columns = convolution.filters // convolution.outputs
    tiles = ceil_div(convolution.outputs, _TILE) * ceil_div(columns, _TILE)
    pixels = convolution.batch * product(convolution.result)
    shares = min(device.sm_count // tiles, pixels // _LEAST_REDUCTION[convolution.dtype])
    return shares * convolution.filters * FLOAT_BYTES if shares > 1 else 0


def _on_tensor_cores(convolution: CudaConvolution, device: DeviceTraits) -> bool:
    least = _TENSOR_CORES.get(convolution.dtype)
    if least is None or device.capability < least:
        return False
    return convolution.tf32 or convolution.dtype is not torch.float32


def _layout_copies(convolution: CudaConvolution, device: DeviceTraits) -> int:
    if not _on_tensor_cores(convolution, device) or convolution.groups == convolution.inputs > 1:
        return 0
    return _copies(convolution, _VECTOR_BYTES // convolution.dtype.itemsize)


def _copies(convolution: CudaConvolution, vector: int, *, padded: bool = True, filters: bool = True) -> int:
    """NHWC copies of what does not lie so, or whose channels do not fill vectors."""
    inputs, outputs = convolution.inputs, convolution.outputs
    images = [
        (inputs, convolution.batch * product(convolution.source)),
        (outputs, convolution.batch * product(convolution.result)),
    ]
    per_group = inputs // convolution.groups
    if filters or per_group % vector:
        images.append((per_group, outputs * product(convolution.kernel)))
    return convolution.dtype.itemsize * sum(
        (round_up(channels, vector) if padded else channels) * pixels
        for channels, pixels in images
        if channels % vector or not convolution.channels_last
    )


def _winograd(convolution: CudaConvolution) -> int:
    if not convolution.dense or convolution.kernel not in _WINOGRAD_FILTERS:
        return 0
    tiles = convolution.batch * product(ceil_div(side, _WINOGRAD_OUTPUTS) for side in convolution.result)
    return FLOAT_BYTES * _transformed(convolution, tiles) * (_WINOGRAD_OUTPUTS + convolution.kernel[0] - 1) ** 2


def _turned_filters(convolution: CudaConvolution) -> int:
    """Small filters as a kernel multiplies them that turns tiles of images by itself."""
    if (
        convolution.purpose == "filters"
        or not convolution.dense
        or convolution.kernel != _TURNED
        or convolution.groups > 1
    ):
        return 0
    inputs, outputs = convolution.inputs, convolution.outputs
    if convolution.purpose == "source":
        inputs, outputs = outputs, inputs
    turned = round_up(inputs, _TURNED_INPUTS) * round_up(outputs, _TURNED_OUTPUTS) * _TURNED_TILE
    return FLOAT_BYTES * (convolution.filters + turned + outputs)


def _fft(convolution: CudaConvolution) -> int:
    kernel = convolution.kernel
    if not convolution.dense or len(kernel) != 2 or not _SMALL_FILTER < max(kernel) <= _FFT_SIDE:
        return 0
    steps = [_FFT_SIDE - size + 1 for size in kernel]
    sides = zip(convolution.result, steps, strict=True)
    tiles = convolution.batch * product(ceil_div(side, step) for side, step in sides)
    return _FFT_TILE_BYTES * _transformed(convolution, tiles)


def _fft_of_filters(convolution: CudaConvolution) -> int:
    """Small filters' gradients went this way where a tile held an image."""
    kernel, inputs, outputs = convolution.kernel, convolution.inputs, convolution.outputs
    small = len(kernel) == 2 and 1 < max(kernel) <= _SMALL_FILTER and convolution.groups == 1
    if convolution.purpose != "filters" or not convolution.dense or not small:
        return 0
    if any(side > _FFT_SIDE - size + 1 for side, size in zip(convolution.result, kernel, strict=True)):
        return 0
    if inputs * outputs > 2 * convolution.batch * (inputs + outputs):
        # Spectra of so many filters cost more than they save.
        return 0
    inputs, outputs = round_up(inputs, _FFT_CHANNELS), round_up(outputs, _FFT_CHANNELS)
    return _FFT_TILE_BYTES * ((inputs + outputs) * convolution.batch + inputs * outputs)


def _transformed(convolution: CudaConvolution, tiles: int) -> int:
    """Transformed tiles of source, result and filters."""
    filters = convolution.inputs // convolution.groups * convolution.outputs
    return (convolution.inputs + convolution.outputs) * tiles + filters
