"""What several threads take to add up the gradients of one convolution's weights on CPU.

oneDNN divides images (and rows) among threads as well as channels. Threads that share a weight need a buffer each, but
one, and a barrier. How it divides is in src/cpu/x64/jit_avx512_common_conv_kernel.cpp and
jit_avx512_common_1x1_conv_kernel.cpp (``balance``), and in cpu_reducer.cpp (``reduce_balancer_t``) for biases and for
the AVX2 kernel. Sizes of barriers are measured with torch 2.13.0 (oneDNN 3.12), two to four threads, November 2026.
"""

from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import NamedTuple

from memplan.tracing.scratch.cpu_convolution_shape import AVX2_LANES, SCRATCH_ALIGNMENT, CpuConvolution
from memplan.tracing.scratch.cpu_shapes import PAGE_BYTES, round_up

_FEWEST_ROWS = 9
"""Rows of the result from which on threads divide rows, too (min_oh_reduce)."""
_AREA_BLOCK = 7, 16
"""Least and most pixels that a 1x1 kernel takes at once (reduce_block)."""
_LEAST_OF_ROW, _MOST_OF_ROW = 4, 256
"""The same where none of these divides an image: it takes a part of a row."""
_WEIGHT, _POINTWISE_WEIGHT = 8, 12
"""How often a weight counts in the estimate of memory traffic (wei_coef, output_koeff)."""
_BARRIER_BYTES = PAGE_BYTES
"""A barrier (measured). It begins at a page, as a reducer's buffer does: each of these may waste another page."""
_TOLERATED = 1.1
"""Traffic may be so many times the least where it saves work."""


class _Split(NamedTuple):
    """Into how many parts images, output channels and input channels are divided, a thread for each part."""

    images: int
    outputs: int
    inputs: int


_Cost = Callable[[_Split], int]


class _Areas(NamedTuple):
    """Parts of all images that go to threads, their size, and the step from pixel to pixel."""

    number: int
    pixels: int
    stride: int


class _Blocks(NamedTuple):
    """Blocks of channels and their width."""

    outputs: int
    inputs: int
    width: int
    inputs_width: int


def sharing_bytes(conv: CpuConvolution, threads: int, width: int) -> int:
    """Scratchpad of weight gradients beyond what one thread takes.

    Args:
        conv: In one group, of single precision.
        threads: All that oneDNN may use.
        width: Channels in a block.
    """
    if threads == 1:
        return 0
    if conv.transposed:
        inner = sharing_bytes(_mirrored(conv), threads, width)
        # The transposed convolution books the other one's scratchpad as a part of its own.
        return inner + SCRATCH_ALIGNMENT if inner else 0
    return _by_avx2(conv, threads) if width == AVX2_LANES else _by_avx512(conv, threads, width)


def _by_avx512(conv: CpuConvolution, threads: int, width: int) -> int:
    narrow = conv.inputs if conv.flat_source else width
    blocks = _Blocks(_share(conv.outputs, width), _share(conv.inputs, narrow), width, narrow)
    split = (_by_images if conv.by_pointwise_kernel else _by_rows)(conv, blocks, threads)
    used = split.images * split.outputs * split.inputs
    bias = _reducer_bytes(blocks.outputs, width * conv.itemsize, conv.batch, used) if conv.bias else 0
    if split.images == 1:
        return bias
    floats = blocks.outputs * width * blocks.inputs * narrow * conv.taps
    # The kernel for wider filters has room for biases there, too, whether there are any or not.
    floats += 0 if conv.by_pointwise_kernel else blocks.outputs * width
    return floats * (split.images - 1) * conv.itemsize + SCRATCH_ALIGNMENT + _BARRIER_BYTES + PAGE_BYTES + bias


def _mirrored(conv: CpuConvolution) -> CpuConvolution:
    """The convolution from a transposed one's results to its sources, whose weights have the same gradients."""
    return replace(
        conv,
        inputs=conv.outputs,
        outputs=conv.inputs,
        source_area=conv.result_area,
        result_area=conv.source_area,
        source_rows=conv.result_rows,
        result_rows=conv.source_rows,
        transposed=False,
        bias=False,
    )


def _by_avx2(conv: CpuConvolution, threads: int) -> int:
    outputs, inputs = _share(conv.outputs, AVX2_LANES), _share(conv.inputs, AVX2_LANES)
    row = AVX2_LANES * conv.itemsize
    weights = _reducer_bytes(outputs * inputs, conv.taps * AVX2_LANES * row, conv.batch * conv.slices, threads)
    return weights + (_reducer_bytes(outputs, row, conv.batch, threads) if conv.bias else 0)


def _reducer_bytes(jobs: int, job_bytes: int, parts: int, threads: int) -> int:
    """What threads take to add up results of which each has several.

    Args:
        jobs: Results to be computed.
        job_bytes: Bytes of one.
        parts: Summands of each: images.
        threads: All that work on it.
    """
    per_group = max(1, jobs // threads)
    groups = min(jobs // per_group, threads)
    share = min(threads // groups, parts)
    least = jobs * parts
    for guess in range(per_group, jobs):
        tried = min(jobs // guess, threads)
        among = min(threads // tried, parts)
        longest = _share(jobs, tried) * (_share(parts, among) + (among > 1))
        if longest < least:
            groups, share, least = tried, among, longest
    if share == 1:
        return 0
    return groups * (share - 1) * _share(jobs, groups) * job_bytes + groups * _BARRIER_BYTES + 2 * PAGE_BYTES


def _splits(threads: int, most_images: int, blocks: _Blocks) -> Iterator[_Split]:
    for images in range(1, min(threads, most_images) + 1):
        share = threads // images
        for outputs in range(1, min(share, blocks.outputs) + 1):
            yield _Split(images, outputs, min(share // outputs, blocks.inputs))


def _cheapest(threads: int, most_images: int, blocks: _Blocks, cost: _Cost) -> _Split:
    """The last of the least memory traffic."""
    return min([_Split(1, 1, 1), *_splits(threads, most_images, blocks)][::-1], key=cost)


def _traffic(blocks: _Blocks, conv: CpuConvolution, source: _Areas, result: _Areas, weight: int) -> _Cost:
    """What a thread reads and writes; ``weight`` is how often it touches a weight."""

    def cost(split: _Split) -> int:
        inputs, outputs = _share(blocks.inputs, split.inputs), _share(blocks.outputs, split.outputs)
        read = _share(source.number, split.images) * inputs * blocks.inputs_width * source.pixels // source.stride
        read += _share(result.number, split.images) * outputs * blocks.width * result.pixels
        return read + weight * outputs * inputs * conv.taps * blocks.inputs_width * blocks.width

    return cost


def _by_images(conv: CpuConvolution, blocks: _Blocks, threads: int) -> _Split:
    """How the 1x1 kernel divides its work; where it is strided, its source has been gathered before."""
    pixels = _area_block(conv.result_area, conv.result_area // conv.result_rows)
    areas = _Areas(conv.batch * _share(conv.result_area, pixels), pixels, 1)
    cost = _traffic(blocks, conv, areas, areas, _POINTWISE_WEIGHT)
    return _settled(_cheapest(threads, areas.number, blocks, cost), conv.batch, threads)


def _area_block(area: int, width: int) -> int:
    found = _divider(area, *_AREA_BLOCK, largest=True)
    if area % found:
        found = _divider(width, _LEAST_OF_ROW, width, largest=False)
    return found if found <= _MOST_OF_ROW else 1


def _divider(value: int, least: int, most: int, *, largest: bool) -> int:
    """The divider that pads the least."""
    most = max(1, min(most, value))
    tried = range(most, max(1, min(least, most)) - 1, -1)
    return min(tried if largest else reversed(tried), key=lambda each: 1 - value / round_up(value, each))


def _by_rows(conv: CpuConvolution, blocks: _Blocks, threads: int) -> _Split:
    """How the kernel for wider filters divides its work: by images, and by rows where there are many."""
    tall = not conv.dilated and len(conv.kernel) == 2 and conv.result_rows > _FEWEST_ROWS
    own, rows = (conv.source_rows, conv.result_rows) if tall else (1, 1)
    source = _Areas(conv.batch * own, conv.source_area // own, conv.stride_area)
    result = _Areas(conv.batch * rows, conv.result_area // rows, 1)
    cost = _traffic(blocks, conv, source, result, _WEIGHT)

    def work(split: _Split) -> int:
        channels = _share(blocks.outputs, split.outputs) * _share(blocks.inputs, split.inputs)
        return _share(result.number, split.images) * channels

    parts = conv.batch * conv.slices * max(1, rows // _FEWEST_ROWS)
    best = _cheapest(threads, parts, blocks, cost)
    limit = _TOLERATED * cost(best)
    for split in _splits(threads, parts, blocks):
        if (work(split) <= work(best) and cost(split) < limit) or 4 * work(split) <= 3 * work(best):
            best = split
    return _settled(best, parts, threads)


def _settled(split: _Split, parts: int, threads: int) -> _Split:
    """Where most threads divide images, all do."""
    return split._replace(images=min(parts, threads)) if threads // 2 < split.images < threads else split


def _share(size: int, parts: int) -> int:
    return -(-size // parts)
