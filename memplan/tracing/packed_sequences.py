"""``pad_packed_sequence`` on fake tensors: the original writes lengths into memory that fake tensors do not have.

Follows aten/src/ATen/native/PackedSequence.cpp ``_pad_packed_sequence``: one copy for each run of steps with
equally many sequences.
"""

from typing import Any

import torch

from memplan.seam.fake import FakeTensor
from memplan.seam.tensors import pad_packed_sequence as _original


def pad_packed_sequence(
    data: torch.Tensor, batch_sizes: torch.Tensor, batch_first: bool, padding_value: float, total_length: int = -1
) -> Any:
    """A packed sequence as a padded tensor, and the lengths of its sequences.

    Args:
        data: Elements, step by step.
        batch_sizes: How many sequences each step has; a real tensor, as packing makes it.
        batch_first: Is the result ``[batch, steps, …]``?
        padding_value: Fills what no sequence has.
        total_length: Steps of the result, at least as many as there are.
    """
    if isinstance(batch_sizes, FakeTensor):
        return _original(data, batch_sizes, batch_first, padding_value, total_length)
    sizes = batch_sizes.tolist()
    steps, most = max(total_length, len(sizes)), sizes[0]
    padded = torch.full((steps, most, *data.shape[1:]), padding_value, dtype=data.dtype, device=data.device)
    lengths = [sum(size > index for size in sizes) for index in range(most)]
    first, offset = 0, 0
    for end in sorted(set(lengths)):
        count = sizes[first]
        part = data[offset : offset + count * (end - first)]
        padded[first:end, :count].copy_(part.view(end - first, count, *data.shape[1:]))
        first, offset = end, offset + part.shape[0]
    return padded.transpose(0, 1) if batch_first else padded, torch.tensor(lengths)
