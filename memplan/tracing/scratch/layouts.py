"""Memory formats of images: which one a tensor lies in, and what bringing it into one costs."""

from collections.abc import Sequence

import torch

_IMAGES = (4, 5)
"""Dimensions of batches of images and of volumes."""


def memory_format(tensor: torch.Tensor) -> torch.memory_format:
    """``Tensor.suggest_memory_format``: channels-last where channels lie innermost, dense or not."""
    layout = {4: torch.channels_last, 5: torch.channels_last_3d}.get(tensor.ndim, torch.contiguous_format)
    lies_so = tensor.ndim in _IMAGES and _has_channels_inside(tensor.shape, tensor.stride())
    return layout if lies_so else torch.contiguous_format


def _has_channels_inside(sizes: Sequence[int], strides: Sequence[int]) -> bool:
    """``is_channels_last_strides`` of c10/core/MemoryFormat.h, which doubtful tensors do not satisfy."""
    least = 0
    if strides[1] == 0:
        return False
    for dim in (1, *range(len(sizes) - 1, 1, -1), 0):
        if sizes[dim] == 0 or strides[dim] < least or (dim == 0 and least == strides[1]):
            return False
        least = strides[dim] * max(1, sizes[dim])
    return True


def format_copy_bytes(tensor: torch.Tensor, layout: torch.memory_format) -> int:
    """Bytes that ``tensor.contiguous(memory_format=layout)`` allocates: none if it lies so already."""
    return 0 if tensor.is_contiguous(memory_format=layout) else tensor.numel() * tensor.element_size()
