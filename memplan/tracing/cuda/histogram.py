"""``torch.histc`` as CUDA runs it, for integers too; code that finds its tensors on a GPU counts those.

Source: aten/src/ATen/native/cuda/SummaryOps.cu ``_histc_cuda`` (torch 2.6 to 2.13).
"""

import torch

from memplan.seam.dispatcher import Kernel


def _histc(
    input: torch.Tensor,  # noqa: A002 (the schema's name)
    bins: int = 100,
    min: float = 0,  # noqa: A002 (the schema's name)
    max: float = 0,  # noqa: A002 (the schema's name)
) -> torch.Tensor:
    """``histc``: counts in the type of what is counted."""
    del min, max
    return input.new_empty(bins)


SHAPES: dict[str, Kernel] = {"histc": _histc}
