"""Scratch of the backward of convolutions on CPU: the same copies as in the forward, pass by pass.

Measured with torch 2.13.0 (oneDNN 3.12) on AVX-512 (AMD EPYC), November 2026: with one thread; gradients of weights
with two to four as well. A strided gradient of a source takes more with every thread, which is not counted.
"""

from dataclasses import dataclass

import torch

from memplan.tracing.scratch import cpu_convolution_images as channels_last
from memplan.tracing.scratch import cpu_convolution_own_backward as own
from memplan.tracing.scratch.cpu_convolution import bounded, dense_first
from memplan.tracing.scratch.cpu_convolution_own import as_it_wants
from memplan.tracing.scratch.cpu_convolution_shape import (
    AVX2_LANES,
    SCRATCH_ALIGNMENT,
    CpuConvolution,
    block,
    by_onednn,
    by_small_products,
    columns_bytes,
    cut_to_cache,
    filters_bytes,
    image_bytes,
    padded_bias_bytes,
    parse,
    reduced_source_bytes,
    refused_by_avx2,
    strided_backward_bytes,
    weights_block,
)
from memplan.tracing.scratch.cpu_convolution_threads import sharing_bytes
from memplan.tracing.scratch.cpu_shapes import FLOAT_BYTES, copy_bytes, lanes, nbytes, results, round_up
from memplan.tracing.scratch.rules import Call, Scratch, Script

_FEWEST_INPUTS_BLOCKED = 3
"""Up to so many input channels weight gradients read the source as it lies (measured)."""
_FLAT_ON_AVX2 = 3
"""Input channels that AVX2's kernel reads as they lie (jit_avx2_conv_kernel_f32.cpp ``flat``; measured)."""
_NARROWEST_WEIGHT_BLOCK = 8
"""Channels per group that blocked kernels need for weight gradients; below they are a matrix product (measured)."""
_WIDEST_BLOCKED = 14
"""Width of filters up to which blocked kernels compute weight gradients; beyond they are a matrix product, too
(src/cpu/x64/jit_avx512_common_conv_kernel.cpp init_conf)."""
_IMAGE, _VOLUME = 2, 3
"""Dimensions of an image, of a volume."""
_WIDEST_DEPTHWISE = 3
"""Filter side up to which oneDNN's depthwise kernel computes weight gradients by itself (measured)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Pass:
    """One of the two passes of a backward: what it reorders."""

    inside: dict[str, int]
    """Held while the pass computes, but gone before its result is copied out."""
    result: int
    """The result in oneDNN's layout, held until it is copied."""
    dense: int = 0
    """A second copy on the way out."""


def _to_source(conv: CpuConvolution) -> _Pass:
    """The gradient of the source."""
    width = block(conv)
    if conv.strided and not conv.transposed and by_small_products(conv):
        return _Pass(
            inside={
                "gradient": image_bytes(conv, conv.outputs, conv.result_area, 1),
                "weight": filters_bytes(conv, lanes(), 1),
                "scratchpad": strided_backward_bytes(conv),
            },
            result=image_bytes(conv, conv.inputs, conv.source_area, 1),
            dense=image_bytes(conv, conv.inputs, conv.source_area, 1),
        )
    if width == 1 and conv.depthwise and conv.transposed and not conv.dilated:
        # Turned around it convolves single channels: small products on rows, which are brought back to planes.
        return _Pass(
            inside={
                "gradient": image_bytes(conv, conv.outputs, conv.result_area, 1),
                "weight": filters_bytes(conv, 1, lanes()),
            },
            result=image_bytes(conv, conv.inputs, conv.source_area, 1),
            dense=image_bytes(conv, conv.inputs, conv.source_area, 1),
        )
    if width == 1 or (not conv.depthwise and refused_by_avx2(conv, to_source=True)):
        return _Pass(
            inside={"columns": columns_bytes(conv)}, result=image_bytes(conv, conv.inputs, conv.source_area, 1)
        )
    if conv.transposed:
        flat = conv.groups == 1 and conv.outputs < lanes()
        return _Pass(
            inside={
                "gradient": 0 if flat else image_bytes(conv, conv.outputs, conv.result_area, width),
                "weight": filters_bytes(conv, width, 1 if flat else width),
            },
            result=image_bytes(conv, conv.inputs, conv.source_area, width),
        )
    return _Pass(
        inside={
            "gradient": image_bytes(conv, conv.outputs, conv.result_area, width),
            "weight": filters_bytes(conv, width, width),
        },
        result=image_bytes(conv, conv.inputs, conv.source_area, width),
    )


def _to_weight(conv: CpuConvolution) -> _Pass:
    """The gradients of weight and bias."""
    width = weights_block(conv)
    bias = conv.outputs * conv.itemsize if conv.bias else 0
    # Seen from the weights, a transposed convolution is one from its results to its sources.
    entering = conv.outputs if conv.transposed else conv.inputs
    flat = conv.groups == 1 and entering < lanes() and not conv.by_pointwise_kernel
    few = flat and (entering != _FLAT_ON_AVX2 if lanes() == AVX2_LANES else entering > _FEWEST_INPUTS_BLOCKED)
    plain_depthwise = conv.depthwise and max(conv.kernel) > _WIDEST_DEPTHWISE
    is_wide = conv.kernel[-1] > _WIDEST_BLOCKED
    # Few inputs, but too many for the first-layer kernel of AVX-512: AVX2's takes over, with blocks of eight. It
    # refuses dilated filters and ones taller than what they read (src/cpu/x64/jit_avx2_conv_kernel_f32.cpp, init_conf
    # of weights), and volumes with a margin (measured).
    is_padded_volume = len(conv.kernel) == 3 and conv.padded
    is_tall = len(conv.kernel) > 1 and conv.kernel[0] > (conv.result_rows if conv.transposed else conv.source_rows)
    is_spread = (few or lanes() == AVX2_LANES) and ((conv.dilated and conv.taps > 1) or is_padded_volume or is_tall)
    is_refused = lanes() != AVX2_LANES and _is_refused(conv, flat=flat)
    if width < _NARROWEST_WEIGHT_BLOCK or plain_depthwise or is_wide or is_spread or is_refused:
        weight = filters_bytes(conv, 1, 1)
        # The reduction buffer is booked in bytes times the size of a float (measured: four times the weights).
        reduced = 4 * torch.get_num_threads() * weight + SCRATCH_ALIGNMENT
        inside = {"columns": columns_bytes(conv) + reduced}
        return _Pass(inside=inside, result=(filters_bytes(conv, 1, width) if conv.depthwise else weight) + bias)
    if few:
        flat, width = False, AVX2_LANES
    source = image_bytes(conv, conv.inputs, conv.source_area, width)
    gradient = image_bytes(conv, conv.outputs, conv.result_area, width)
    scratchpad = reduced_source_bytes(conv) + (0 if conv.transposed else padded_bias_bytes(conv, width))
    if conv.groups == 1 and conv.itemsize == FLOAT_BYTES:
        scratchpad += sharing_bytes(conv, torch.get_num_threads(), width)
    if flat and conv.transposed:
        inside = {"source": source, "scratchpad": scratchpad}
        return _Pass(inside=inside, result=filters_bytes(conv, width, 1) + bias)
    inside = {"gradient": gradient, "source": 0 if flat else source, "scratchpad": scratchpad}
    return _Pass(inside=inside, result=filters_bytes(conv, 1 if flat else width, width) + bias)


def _is_refused(conv: CpuConvolution, *, flat: bool) -> bool:
    """Margins that no filter reaches across; dilated filters of first layers that stride or read volumes (measured)."""
    is_dilated = conv.dilated and conv.taps > 1
    is_volume = len(conv.kernel) == _VOLUME
    if conv.margin >= conv.kernel[-1] and not (conv.dilated and conv.kernel[-1] > 1):
        return True
    return flat and is_dilated and (conv.strided or is_volume)


def backward(call: Call) -> Script | None:
    """``aten.convolution_backward``."""
    gradient, source, weight = call.args[0], call.args[1], call.args[2]
    wants_source, wants_weight, wants_bias = call.args[10]
    conv = parse(source, weight, gradient, call, offset=1, bias=wants_bias)
    if not by_onednn(source, conv):
        conv = as_it_wants(conv)
        work = own.backward(conv, gradient, source, weight, wants_source=wants_source, wants_weight=wants_weight)
        # The kernel of volumes brings what it reads to its layout pass by pass.
        by_itself = len(conv.kernel) == _VOLUME and not conv.transposed and not conv.dilated
        return work if by_itself else dense_first(work, conv, source, weight)
    if conv.channels_last:
        return dense_first(_of_images(call, conv), conv, source, weight, gradient)
    # The trace enters all results at once, between the two passes. Where only the first is there yet, oneDNN's copies
    # are counted smaller by the others, and where the others are copied out, they stand in for part of the copies.
    late = sum(nbytes(tensor) for tensor in results(call)[1:] if tensor is not None)
    first: list[Scratch] = []
    rest: list[Scratch] = []
    if wants_source:
        held, steps = _first_pass(_to_source(conv), late)
        first += cut_to_cache(steps) if conv.transposed else steps
        rest += [Scratch("free", "source result")] if held else []
    if wants_weight or wants_bias:
        rest += _second_pass(_to_weight(conv), late)
    work = Script(before=tuple(first), after=tuple(rest))
    copied = copy_bytes(gradient)
    if copied:
        work = Script(before=(Scratch("alloc", "contiguous gradient", copied), *work.before), after=work.after)
    script = dense_first(work, conv, source, weight)
    script = bounded(script, source, weight) if _is_unmeasured(conv) else script
    return _by_either_kernel(script, conv) if wants_weight and _is_undecided(conv) else script


def _is_undecided(conv: CpuConvolution) -> bool:
    """AVX-512: which kernel takes gradients of weights of volumes, and in half types, is known of some alone."""
    return lanes() != AVX2_LANES and (len(conv.kernel) == _VOLUME or conv.itemsize < FLOAT_BYTES)


def _by_either_kernel(script: Script, conv: CpuConvolution) -> Script:
    """What was counted may be nothing; or what a product of matrices takes comes on top of it."""
    before, after = (tuple(map(_perhaps, lines)) for lines in (script.before, script.after))
    # Columns of one whole image and the weights four times for each thread; or blocks of floats, each side twice. The
    # weights are in blocks of floats, too.
    columns = FLOAT_BYTES * conv.inputs // conv.groups * conv.taps * conv.result_area
    padded = round_up(conv.inputs, lanes()) * round_up(conv.outputs, lanes()) // conv.groups * conv.taps
    weights = 4 * FLOAT_BYTES * torch.get_num_threads() * padded
    sides = (conv.inputs, conv.source_area), (conv.outputs, conv.result_area)
    blocks = 2 * FLOAT_BYTES * conv.batch * sum(round_up(channels, lanes()) * area for channels, area in sides)
    most = columns + weights + blocks
    return Script(before=before, after=(*after, Scratch("alloc", "other kernel", 0, most=most)))


def _perhaps(line: Scratch) -> Scratch:
    return line._replace(most=line.nbytes) if line.action == "alloc" and line.most is None else line


def _is_unmeasured(conv: CpuConvolution) -> bool:
    """Strided groups may be computed on plain layouts, with a copy more of the source's gradient (so on AVX2)."""
    return lanes() != AVX2_LANES and conv.strided and conv.groups > 1 and not conv.depthwise


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


def _of_images(call: Call, conv: CpuConvolution) -> Script:
    """Of channels-last images."""
    weights = _to_weight(conv)
    of_source, *others = [0 if each is None else nbytes(each) for each in results(call)]
    script = channels_last.backward(
        conv,
        weights.inside | {"result": weights.result},
        source_bytes=of_source,
        weight_bytes=others[0],
        result_bytes=sum(others),
    )
    is_plain = conv.depthwise and (max(conv.kernel) > _WIDEST_DEPTHWISE or len(conv.kernel) != _IMAGE)
    return bounded(script, call.args[0], call.args[1]) if is_plain else script


RULES = {"aten.convolution_backward.default": backward}
"""Op name → rule."""
