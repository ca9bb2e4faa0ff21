"""Scratch of PyTorch's own batch norm: channels-last images are reduced through staging buffers.

Follows aten/src/ATen/native/cuda/Normalization.cu (``batch_norm_choose_impl``, ``batch_norm_mean_var``,
``batch_norm_backward_cuda``), Normalization.cuh (``batch_norm_stats_channels_last_cuda_template``,
``batch_norm_backward_reduce_cuda_channels_last_template``) and ``flexible_launch_configs``, read at main of 2026.
"""

from collections.abc import Mapping

import torch

from memplan.tracing.scratch.cuda_shapes import FLOAT_BYTES, allocations, argument, ceil_div
from memplan.tracing.scratch.layouts import memory_format
from memplan.tracing.scratch.rules import Call, Rule, Script

# flexible_launch_configs: threads of a block, its width, elements of a thread, blocks along the reduction, and how few
# of them are not worth a buffer.
_BLOCK = 512
_WIDTH = 32
_PER_THREAD = 16
_MOST_BLOCKS = 128
_FEW_BLOCKS = 8
_SEMAPHORE_BYTES = 4
# Values kept by block and channel: mean, squares and count, padded, in forward; two sums in backward.
_FORWARD_VALUES, _BACKWARD_VALUES = 4, 2


def staging_bytes(rows: int, channels: int, values: int, item: int) -> tuple[int, int]:
    """Sizes of the staging buffer and of the semaphores; zeros where one block reduces a channel.

    Args:
        rows: Pixels of all images.
        channels: Channels.
        values: Values kept by block and channel.
        item: Bytes of one.
    """
    width = min(_last_power(channels), _WIDTH)
    height = min(_last_power(ceil_div(rows, _PER_THREAD)), _BLOCK // width)
    if width * height != _BLOCK:
        width = min(_last_power(channels), _BLOCK // height)
    blocks = min(ceil_div(rows, height * _PER_THREAD), _MOST_BLOCKS)
    if blocks < _FEW_BLOCKS:
        return 0, 0
    return values * channels * blocks * item, ceil_div(channels, width) * _SEMAPHORE_BYTES


def _last_power(size: int) -> int:
    return 1 << (max(size, 1).bit_length() - 1)


def _staged(source: torch.Tensor, values: int) -> tuple[tuple[str, int], ...]:
    """Buffers for an image whose channels lie innermost; none for others."""
    innermost = (
        source.stride(1) == 1 if source.is_contiguous() else memory_format(source) is not torch.contiguous_format
    )
    if not innermost or not source.numel():
        return ()
    channels = source.shape[1]
    item = max(source.element_size(), FLOAT_BYTES)
    staging, semaphores = staging_bytes(source.numel() // channels, channels, values, item)
    return ("staging", staging), ("semaphores", semaphores)


def _forward(training_position: int | None) -> Rule:
    def rule(call: Call) -> Script | None:
        if training_position is not None and not argument(call, training_position, "training"):
            return None
        after = allocations(_staged(call.args[0], _FORWARD_VALUES))
        return Script(after=after) if after else None

    return rule


def _backward(call: Call) -> Script | None:
    """``native_batch_norm_backward(grad_out, input, weight, running_mean, …)``."""
    source = call.args[1]
    staged = _staged(source, _BACKWARD_VALUES)
    if not staged:
        return None
    sums = source.shape[1] * max(source.element_size(), FLOAT_BYTES)
    return Script(before=allocations((("sum", sums), ("product sum", sums), *staged)))


def _reduce(call: Call) -> Script | None:
    """``batch_norm_backward_reduce(grad_out, input, …)``, whose sums are results."""
    after = allocations(_staged(call.args[1], _BACKWARD_VALUES))
    return Script(after=after) if after else None


BATCH_NORM_RULES: Mapping[str, Rule] = {
    "aten.native_batch_norm.default": _forward(5),
    "aten._native_batch_norm_legit.default": _forward(5),
    "aten._native_batch_norm_legit.no_stats": _forward(3),
    "aten.batch_norm_stats.default": _forward(None),
    "aten.native_batch_norm_backward.default": _backward,
    "aten.batch_norm_backward_reduce.default": _reduce,
}
"""Op name → rule."""
