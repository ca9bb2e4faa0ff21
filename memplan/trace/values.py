"""Values that fake tensors do not have: what ``.item()`` returns and how many elements a mask selects."""

from collections.abc import Mapping
from typing import Any

import torch


class Values:
    """Runs ops on fake tensors and answers, by a stated assumption, those that need data."""

    def __init__(self, *, worst_case: bool) -> None:
        self.worst_case = worst_case
        self.assumptions: dict[str, None] = {}
        """Assumptions made so far, in order, each a sentence."""

    def run(self, func: Any, name: str, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Any:
        """Run one op."""
        if func is torch.ops.aten._local_scalar_dense.default:
            return self._item(args[0])
        return func(*args, **kwargs)

    def _item(self, tensor: torch.Tensor) -> Any:
        constant = getattr(tensor, "constant", None)
        if constant is not None:
            return constant.item()
        if tensor.dtype is torch.bool:
            return True
        return 1.0 if tensor.is_floating_point() else 1
