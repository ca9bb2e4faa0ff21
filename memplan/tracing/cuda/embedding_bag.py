"""EmbeddingBag as CUDA runs it: which bag an index belongs to is always kept, and of maxima alone their indices.

Source: aten/src/ATen/native/cuda/EmbeddingBag.cu ``_embedding_bag_cuda``. CPU's kernel leaves the first out where it
can and keeps something for every mode.
"""

import torch

from memplan.seam.dispatcher import Kernel

_MAX_MODE = 2
"""ATen/native/EmbeddingBag.h ``EmbeddingBagMode::MAX``."""


def _embedding_bag(  # noqa: PLR0917 (the schema's order)
    weight: torch.Tensor,
    indices: torch.Tensor,
    offsets: torch.Tensor,
    scale_grad_by_freq: bool = False,
    mode: int = 0,
    sparse: bool = False,
    per_sample_weights: torch.Tensor | None = None,
    include_last_offset: bool = False,
    padding_idx: int = -1,
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor]:
    """``_embedding_bag``: output, bag of each index, sizes of bags, indices of maxima."""
    del scale_grad_by_freq, sparse, per_sample_weights, padding_idx
    # ``promoteIndicesAndOffsets``: the wider of the two types.
    dtype = torch.promote_types(indices.dtype, offsets.dtype)
    bags, width = offsets.size(0) - include_last_offset, weight.size(1)
    return (
        weight.new_empty(bags, width),
        indices.new_empty(indices.size(0), dtype=dtype),
        offsets.new_empty(offsets.size(), dtype=dtype),
        indices.new_empty((bags, width) if mode == _MAX_MODE else (0,), dtype=dtype),
    )


SHAPES: dict[str, Kernel] = {"_embedding_bag": _embedding_bag, "_embedding_bag_forward_only": _embedding_bag}
