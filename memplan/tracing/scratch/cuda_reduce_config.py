"""Global-memory scratch of one CUDA reduction launch.

Follows aten/src/ATen/native/cuda/Reduce.cuh (``setReduceConfig``, ``ReduceConfig``) of torch 2.13; the same figures
came out of every reduction in real torch 2.1, 2.6 and 2.11 traces. A reduction with few outputs and a long input is
split over thread blocks, which then meet in a buffer in global memory and count themselves in semaphores.
"""

import math
from dataclasses import dataclass

from memplan.tracing.records import DeviceTraits
from memplan.tracing.scratch.cuda_iterator import Axes
from memplan.tracing.scratch.cuda_shapes import ceil_div

# Reduce.cuh: mnt_wrapper<T>::MAX_NUM_THREADS (256 for complex double, which memplan does not tell apart).
_MAX_THREADS = 512
_WARP = 32
# setReduceConfig: min_values_per_thread, max_values_per_thread.
_MIN_VALUES, _MAX_VALUES = 16, 256
# setReduceConfig vectorizes along the input only above this many inputs per output.
_VECTORIZE_ABOVE = 128
# get_output_vec_size starts from vectors of four.
_OUTPUT_VECTOR = 4
_SEMAPHORE_BYTES = 4


@dataclass(frozen=True, slots=True, kw_only=True)
class Kernel:
    """Template parameters of one gpu_reduce_kernel instantiation that decide its scratch."""

    in_bytes: int
    """Bytes of an input element as the kernel reads it."""
    accumulate_bytes: int
    """``sizeof(arg_t)``: what a partial result takes."""
    unroll: int = 4
    """``vt0``, also the width of vectorized input loads."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Block:
    width: int
    height: int
    output_vector: int
    reduces_fastest: bool

    @property
    def threads(self) -> int:
        return self.width * self.height


def global_scratch(axes: Axes, kernel: Kernel, device: DeviceTraits) -> tuple[int, int] | None:
    """Sizes of the buffer and of the semaphores that a reduction launch allocates.

    Args:
        axes: What it iterates over (32-bit indexable).
        kernel: Its instantiation.
        device: Multiprocessors and threads of the device.

    Returns:
        Bytes of the buffer and of the semaphores; None if one thread block per output does.
    """
    outputs = math.prod(axis.size for axis in axes if not axis.reduced)
    inputs = math.prod(axis.size for axis in axes if axis.reduced)
    if not outputs or not inputs:
        return None
    block = _block(axes, kernel, inputs, outputs)
    step_in = block.width if block.reduces_fastest else 1
    splits_warps = ceil_div(inputs, step_in) >= min(block.height * _MIN_VALUES, _MAX_VALUES)
    step_out = (1 if block.reduces_fastest else block.width) * (1 if splits_warps else block.height)
    step_in *= block.height if splits_warps else 1
    grid = ceil_div(outputs // block.output_vector, step_out)
    ctas = _ctas_per_output(ceil_div(inputs, step_in), grid, block.threads, device) if splits_warps else 1
    if ctas <= 1:
        return None
    lanes = 1 if block.reduces_fastest else block.width * block.output_vector
    return kernel.accumulate_bytes * outputs * ctas * lanes, _SEMAPHORE_BYTES * grid


def _ctas_per_output(values_per_thread: int, grid: int, threads: int, device: DeviceTraits) -> int:
    target = device.sm_count * (device.threads_per_sm // threads)
    if values_per_thread < _MAX_VALUES or grid > target:
        return 1
    most = min(ceil_div(target, grid), ceil_div(values_per_thread, _MIN_VALUES))
    return max(most, ceil_div(values_per_thread, _MAX_VALUES))


def _block(axes: Axes, kernel: Kernel, inputs: int, outputs: int) -> _Block:
    reduced = sum(axis.reduced for axis in axes)
    fastest = reduced == len(axes) or axes[0].in_stride < axes[reduced].in_stride
    along_x, along_y = (inputs, outputs) if fastest else (outputs, inputs)
    vector = 1
    if axes[0 if fastest else reduced].in_stride == kernel.in_bytes:
        if not fastest:
            vector = _output_vector(axes, reduced, kernel.in_bytes)
            along_x //= vector
        elif along_x > _VECTORIZE_ABOVE and reduced == 1:
            along_x //= kernel.unroll
    limit = _MAX_THREADS // vector
    width, height = _power_of_two(along_x, limit), _power_of_two(along_y, limit)
    rows = min(height, limit // min(width, _WARP))
    return _Block(width=min(width, limit // rows), height=rows, output_vector=vector, reduces_fastest=fastest)


def _output_vector(axes: Axes, output: int, in_bytes: int) -> int:
    vector = _OUTPUT_VECTOR
    others = (axis.in_stride // in_bytes for index, axis in enumerate(axes) if index != output)
    for extent in (axes[output].size, *others):
        while extent % vector:
            vector //= 2
    return vector


def _power_of_two(size: int, limit: int) -> int:
    return 1 << (size.bit_length() - 1) if 0 < size < limit else min(max(size, 1), limit)
