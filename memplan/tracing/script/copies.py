"""Deep copies of tensors with data, made while others have none."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch

from memplan.seam.fake import FakeTensor
from memplan.seam.modes import disable_current_modes
from memplan.seam.replace import Replacement, attribute, replaced

_COPY = "torch.Tensor.__deepcopy__"


@contextmanager
def real_copies() -> Iterator[None]:
    """Let copies of real tensors be real: a fake world would make tensors without data over their new storages."""
    copy = attribute(_COPY)

    def copied(tensor: torch.Tensor, memo: dict[int, Any]) -> Any:
        if isinstance(tensor, FakeTensor):
            return copy(tensor, memo)
        with disable_current_modes():
            return copy(tensor, memo)

    with replaced((Replacement(_COPY, copied),)):
        yield
