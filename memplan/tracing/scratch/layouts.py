"""Memory formats of images: which one a tensor lies in, and what bringing it into one costs."""

import torch


def memory_format(tensor: torch.Tensor) -> torch.memory_format:
    """``Tensor.suggest_memory_format``: channels-last where a tensor of 4 or 5 dimensions lies so and not row-major."""
    layout = {4: torch.channels_last, 5: torch.channels_last_3d}.get(tensor.ndim, torch.contiguous_format)
    lies_so = not tensor.is_contiguous() and tensor.is_contiguous(memory_format=layout)
    return layout if lies_so else torch.contiguous_format


def format_copy_bytes(tensor: torch.Tensor, layout: torch.memory_format) -> int:
    """Bytes that ``tensor.contiguous(memory_format=layout)`` allocates: none if it lies so already."""
    return 0 if tensor.is_contiguous(memory_format=layout) else tensor.numel() * tensor.element_size()
