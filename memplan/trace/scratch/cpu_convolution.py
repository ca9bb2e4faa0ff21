"""Scratch of convolutions on CPU: oneDNN's reordered copies, the columns of PyTorch's own kernel.

oneDNN computes on layouts of its own choice. Where the user's tensors have another, ideep copies them
(``reorder_if_differ_in``, third_party/ideep/include/ideep/operators/conv.hpp) through PyTorch's allocator: source and
weights before the result, the result itself afterwards, in aten/src/ATen/native/mkldnn/Conv.cpp. Measured with torch
2.13 (oneDNN 3.12) on AVX-512 (AMD EPYC), one thread, over some 200 shapes.
"""

from dataclasses import dataclass

import torch

from memplan.trace.scratch.cpu_shapes import (
    PAGE_BYTES,
    copy_bytes,
    lanes,
    nbytes,
    product,
    results,
    round_up,
)
from memplan.trace.scratch.rules import Call, Scratch, Script

_SCRATCH_ALIGNMENT = 128
"""What oneDNN's scratchpad adds to each of its parts (src/common/memory_tracking.hpp)."""
_STRIDED_BACKWARD_PAGES = 5
"""Buffers of brgemm's strided backward beside its copy of the gradient (measured)."""
_NARROW_OUTPUT = 32
"""Channels that copy has at least (measured)."""
_SMALL_INPUT = 20_480
"""Below it a single image stays with PyTorch's own kernel (Convolution.cpp ConvParams::use_mkldnn)."""
_SMALL_BATCH = 16
"""Below it 1x1 filters do, where there is one thread (same place)."""
_AVX2_LANES = 8
_FEWEST_INPUTS_BLOCKED = 3
"""Up to so many input channels weight gradients read the source as it lies (measured)."""
_NARROWEST_WEIGHT_BLOCK = 8
"""Channels per group that blocked kernels need for weight gradients; below they are a matrix product (measured)."""
_WIDEST_DEPTHWISE = 3
"""Filter side up to which oneDNN's depthwise kernel computes weight gradients by itself (measured)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Convolution:
    """One convolution, transposed or not: sources have ``inputs`` channels, results ``outputs``."""

    batch: int
    inputs: int
    outputs: int
    groups: int
    source_area: int
    """Pixels of one source channel."""
    result_area: int
    """Pixels of one result channel."""
    kernel: tuple[int, ...]
    strided: bool
    dilated: bool
    padded: bool
    transposed: bool
    itemsize: int
    channels_last: bool
    bias: bool

    @property
    def taps(self) -> int:
        """Weights per pair of channels."""
        return product(self.kernel)

    @property
    def pointwise(self) -> bool:
        """A 1x1 filter without padding?"""
        return self.taps == 1 and not self.padded and self.groups == 1 and not self.transposed

    @property
    def depthwise(self) -> bool:
        """One filter per channel?"""
        return self.groups > 1 and self.groups == self.inputs == self.outputs

    @property
    def flat_source(self) -> bool:
        """Do oneDNN's "first convolution" kernels read the few source channels as they lie?"""
        return self.groups == 1 and self.inputs < lanes() and not self.pointwise


def parse(
    source: torch.Tensor, weight: torch.Tensor, result: torch.Tensor, call: Call, *, offset: int, bias: bool
) -> Convolution:
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
    groups = call.args[8 + offset]
    return Convolution(
        batch=source.shape[0],
        inputs=source.shape[1],
        outputs=result.shape[1],
        groups=groups,
        source_area=product(source.shape[2:]),
        result_area=product(result.shape[2:]),
        kernel=tuple(weight.shape[2:]),
        strided=any(step != 1 for step in stride),
        dilated=any(step != 1 for step in dilation),
        padded=any(step != 0 for step in padding),
        transposed=bool(call.args[6 + offset]),
        itemsize=source.element_size(),
        channels_last=source.ndim == 4
        and not source.is_contiguous()
        and source.is_contiguous(memory_format=torch.channels_last),
        bias=bias,
    )


def by_onednn(source: torch.Tensor, conv: Convolution) -> bool:
    """Does oneDNN compute it (Convolution.cpp ConvParams::use_mkldnn)?"""
    if not torch.backends.mkldnn.is_available() or source.dtype not in (torch.float32, torch.bfloat16, torch.float16):
        return False
    if conv.transposed and conv.groups > 1 and conv.groups == conv.inputs:
        return False
    if source.dtype is not torch.float32:
        return True
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


def block(conv: Convolution) -> int:
    """Channels that oneDNN lays out together; 1 where it falls back to a matrix product on plain layouts."""
    if conv.groups == 1 or conv.depthwise:
        return lanes()
    for width in (lanes(), 8, 4):
        if conv.inputs // conv.groups % width == 0 and conv.outputs // conv.groups % width == 0:
            return width
    return 1


def _image(conv: Convolution, channels: int, area: int, width: int) -> int:
    return conv.batch * round_up(channels, width) * area * conv.itemsize


def _filters(conv: Convolution, inputs_block: int, outputs_block: int) -> int:
    if conv.depthwise:
        return round_up(conv.groups, outputs_block) * conv.taps * conv.itemsize
    per_group = round_up(conv.inputs // conv.groups, inputs_block) * round_up(
        conv.outputs // conv.groups, outputs_block
    )
    return conv.groups * per_group * conv.taps * conv.itemsize


def _columns(conv: Convolution) -> int:
    """Unrolled source patches of one image and group."""
    return conv.inputs // conv.groups * conv.taps * conv.result_area * conv.itemsize + _SCRATCH_ALIGNMENT


def _reduced_source(conv: Convolution) -> int:
    """A strided 1x1 kernel gathers the pixels that it reads (src/cpu/x64/jit_uni_1x1_conv_utils.hpp rtus_driver_t)."""
    if not (conv.pointwise and conv.strided):
        return 0
    return round_up(conv.inputs, lanes()) * conv.result_area * conv.itemsize + _SCRATCH_ALIGNMENT


def _padded_bias(conv: Convolution, width: int) -> int:
    """A bias is padded to whole blocks of channels."""
    if not conv.bias or conv.outputs % width == 0:
        return 0
    return round_up(conv.outputs, width) * conv.itemsize + _SCRATCH_ALIGNMENT


# ---------------------------------------------------------------------- forward


def _forward_onednn(conv: Convolution, weight: torch.Tensor) -> Script | None:
    if conv.pointwise and conv.channels_last:
        return None
    if conv.channels_last:
        plain = nbytes(weight)
        packed = _filters(conv, 1, lanes())
        return _around({"weight": plain}, {"packed": packed}, keeps=("weight",))
    if conv.transposed and conv.strided:
        copy = _image(conv, conv.outputs, conv.result_area, 1)
        before = {
            "scratchpad": _strided_backward(conv, conv.inputs, conv.source_area),
            "source": _image(conv, conv.inputs, conv.source_area, 1),
            "weight": _filters(conv, 1, lanes()),
            "result": copy,
        }
        return _around(before, {}, keeps=("result",), also={"dense": copy})
    width = block(conv)
    if width == 1:
        return _around(
            {"columns": _columns(conv), "result": _image(conv, conv.outputs, conv.result_area, 1)}, {}, ("result",)
        )
    result = _image(conv, conv.outputs, conv.result_area, width)
    extra = _reduced_source(conv) + _padded_bias(conv, width)
    if conv.transposed:
        extra = result + _SCRATCH_ALIGNMENT if conv.bias else 0
    flat = conv.flat_source and not conv.transposed
    before = {
        "scratchpad": extra,
        "source": 0 if flat else _image(conv, conv.inputs, conv.source_area, width),
        "weight": _filters(conv, 1 if flat else width, width),
        "result": result,
    }
    return _around(before, {}, keeps=("result",))


def _around(
    before: dict[str, int], after: dict[str, int], keeps: tuple[str, ...], also: dict[str, int] | None = None
) -> Script:
    """Allocate ``before``; free all but ``keeps``, allocate ``also`` to convert the result; then ``after``."""
    held = {key: size for key, size in before.items() if size}
    first = [Scratch("alloc", key, size) for key, size in held.items()]
    first += [Scratch("free", key) for key in reversed(held) if key not in keeps]
    first += [Scratch("alloc", key, size) for key, size in (also or {}).items() if size]
    return Script(before=tuple(first), after=tuple(Scratch("alloc", key, size) for key, size in after.items() if size))


def forward(call: Call) -> Script | None:
    """``aten.convolution``."""
    source, weight = call.args[0], call.args[1]
    conv = parse(source, weight, call.out, call, offset=0, bias=call.args[2] is not None)
    if by_onednn(source, conv):
        return _forward_onednn(conv, weight)
    return _around({"columns": _unrolled(conv)}, {}, keeps=("columns",))


def _unrolled(conv: Convolution) -> int:
    """Columns of PyTorch's own kernel, for the whole batch (ConvolutionMM2d.cpp slow_conv2d_forward_out_cpu)."""
    if (conv.pointwise and not conv.strided) or conv.groups != 1 or conv.transposed:
        return 0
    return conv.batch * conv.inputs * conv.taps * conv.result_area * conv.itemsize


# ---------------------------------------------------------------------- backward


@dataclass(frozen=True, slots=True, kw_only=True)
class _Pass:
    """One of the two passes of a backward: what it reorders."""

    inside: dict[str, int]
    """Held while the pass computes, but gone before its result is copied out."""
    result: int
    """The result in oneDNN's layout, held until it is copied."""
    dense: int = 0
    """A second copy on the way out."""


def _strided_backward(conv: Convolution, channels: int, area: int) -> int:
    """One image's gradient, kept by oneDNN's strided backward (src/cpu/x64/jit_brgemm_conv_bwd_strided.cpp)."""
    copy = area * max(channels, _NARROW_OUTPUT) * conv.itemsize
    return round_up(copy, PAGE_BYTES) + _STRIDED_BACKWARD_PAGES * PAGE_BYTES


def _to_source(conv: Convolution) -> _Pass:
    """The gradient of the source."""
    width = block(conv)
    if conv.transposed:
        flat = conv.groups == 1 and conv.outputs < lanes()
        return _Pass(
            inside={
                "gradient": 0 if flat else _image(conv, conv.outputs, conv.result_area, width),
                "weight": _filters(conv, width, 1 if flat else width),
            },
            result=_image(conv, conv.inputs, conv.source_area, width),
        )
    if conv.strided and conv.groups == 1:
        return _Pass(
            inside={
                "gradient": _image(conv, conv.outputs, conv.result_area, 1),
                "weight": _filters(conv, lanes(), 1),
                "scratchpad": _strided_backward(conv, conv.outputs, conv.result_area),
            },
            result=_image(conv, conv.inputs, conv.source_area, 1),
            dense=_image(conv, conv.inputs, conv.source_area, 1),
        )
    if width == 1:
        return _Pass(inside={"columns": _columns(conv)}, result=_image(conv, conv.inputs, conv.source_area, 1))
    return _Pass(
        inside={
            "gradient": _image(conv, conv.outputs, conv.result_area, width),
            "weight": _filters(conv, width, width),
        },
        result=_image(conv, conv.inputs, conv.source_area, width),
    )


def _to_weight(conv: Convolution) -> _Pass:
    """The gradients of weight and bias."""
    width = block(conv)
    bias = conv.outputs * conv.itemsize if conv.bias else 0
    plain_depthwise = conv.depthwise and max(conv.kernel) > _WIDEST_DEPTHWISE
    if width < _NARROWEST_WEIGHT_BLOCK or plain_depthwise:
        weight = _filters(conv, 1, 1)
        # The reduction buffer is booked in bytes times the size of a float (measured: four times the weights).
        inside = {"columns": _columns(conv) + 4 * weight + _SCRATCH_ALIGNMENT}
        return _Pass(inside=inside, result=(_filters(conv, 1, width) if conv.depthwise else weight) + bias)
    if conv.transposed and conv.groups == 1 and conv.outputs < lanes():
        inside = {"source": _image(conv, conv.inputs, conv.source_area, width)}
        return _Pass(inside=inside, result=_filters(conv, width, 1) + bias)
    flat = conv.flat_source and not conv.transposed
    if flat and conv.inputs > _FEWEST_INPUTS_BLOCKED:
        # Few inputs, but too many for the first-layer kernel: the AVX2 kernel takes over, with blocks of eight.
        flat, width = False, _AVX2_LANES
    inside = {
        "gradient": _image(conv, conv.outputs, conv.result_area, width),
        "source": 0 if flat else _image(conv, conv.inputs, conv.source_area, width),
        "scratchpad": _reduced_source(conv) + _padded_bias(conv, width),
    }
    return _Pass(inside=inside, result=_filters(conv, 1 if flat else width, width) + bias)


def backward(call: Call) -> Script | None:
    """``aten.convolution_backward``."""
    gradient, source, weight = call.args[0], call.args[1], call.args[2]
    wants_source, wants_weight, wants_bias = call.args[10]
    conv = parse(source, weight, gradient, call, offset=1, bias=wants_bias)
    if not by_onednn(source, conv):
        return (
            Script(after=(Scratch("alloc", "columns", _unrolled(conv)),)) if wants_weight and _unrolled(conv) else None
        )
    if conv.channels_last:
        return _backward_channels_last(conv, weight)
    # The trace enters all results at once, between the two passes. Where only the first is there yet, oneDNN's copies
    # are counted smaller by the others, and where the others are copied out, they stand in for part of the copies.
    late = sum(nbytes(tensor) for tensor in results(call)[1:] if tensor is not None)
    contiguous = copy_bytes(gradient)
    first = [Scratch("alloc", "contiguous", contiguous)] if contiguous else []
    rest: list[Scratch] = []
    if wants_source:
        held, steps = _first_pass(_to_source(conv), late)
        first += steps
        rest += [Scratch("free", "source result")] if held else []
    if wants_weight or wants_bias:
        rest += _second_pass(_to_weight(conv), late)
    return Script(before=tuple(first), after=tuple(rest))


def _first_pass(work: _Pass, late: int) -> tuple[int, list[Scratch]]:
    """Steps up to where the gradient of the source is copied out, and the bytes still held then."""
    inside = {key: size for key, size in work.inside.items() if size}
    steps = [Scratch("alloc", key, size) for key, size in inside.items()]
    steps.append(Scratch("alloc", "computed", work.result))
    steps += [Scratch("free", key) for key in ("computed", *reversed(inside))]
    held = max(0, work.result + work.dense - late)
    return held, steps + ([Scratch("alloc", "source result", held)] if held else [])


def _second_pass(work: _Pass, counted: int) -> list[Scratch]:
    """Steps from the second pass's copies to its end."""
    inside = {f"second {key}": size for key, size in work.inside.items() if size}
    steps = [Scratch("alloc", key, size) for key, size in inside.items()]
    more = max(0, work.result - counted)
    steps += [Scratch("alloc", "more", more)] if more else []
    steps += [Scratch("free", key) for key in reversed(inside)]
    return [*steps, Scratch("alloc", "copied out", min(work.result, counted))]


def _backward_channels_last(conv: Convolution, weight: torch.Tensor) -> Script:
    """Images stay as they lie; only the weights are copied (to channels-last, then to oneDNN's blocks)."""
    packed = _filters(conv, 1, lanes())
    return Script(
        before=(Scratch("alloc", "weight", nbytes(weight)),),
        after=(Scratch("alloc", "packed", packed), Scratch("alloc", "copied out", nbytes(weight))),
    )


RULES = {"aten.convolution.default": forward, "aten.convolution_backward.default": backward}
"""Op name → rule."""
