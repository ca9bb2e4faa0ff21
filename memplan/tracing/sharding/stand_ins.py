"""Modules that stand in a pipeline stage for those of other stages."""

from typing import Any

import torch
from torch import nn

from memplan.seam.pytree import tree_map
from memplan.tracing.sharding.chain import Signature, first_tensor


class Crossing:
    """What a stage has received, while its forward runs."""

    received: torch.Tensor | None = None


class Left(Exception):  # noqa: N818 - no error: the model's forward has reached the next stage
    """Carries hidden states out of a forward."""

    def __init__(self, hidden: torch.Tensor | None) -> None:
        super().__init__()
        self.hidden = hidden


class StandIn(nn.Module):
    """Stands for a module that another stage has.

    Models read plain attributes of their blocks (which kind of attention one has).
    """

    def __init__(self, original: nn.Module) -> None:
        super().__init__()
        vars(self).update({name: value for name, value in vars(original).items() if isinstance(value, str | int)})


class Earlier(StandIn):
    """Stands for a module of an earlier stage; the last block of them hands on what was received.

    ``result`` is what the module returned, tensors as signatures; ``hands_on``: it is the last block before the stage's
    own.
    """

    def __init__(self, original: nn.Module, crossing: Crossing, result: Any, *, hands_on: bool) -> None:
        super().__init__(original)
        self._crossing, self._result, self._hands_on = crossing, result, hands_on

    def forward(self, *_: Any, **__: Any) -> Any:
        """What the module would return, of the same shapes but without memory."""
        received: Any = self._crossing.received
        handed = [received] if self._hands_on else []

        def given(leaf: Any) -> Any:
            if not isinstance(leaf, Signature):
                return leaf
            return handed.pop() if handed else received.new_empty((), dtype=leaf.dtype).expand(leaf.shape)

        return tree_map(given, self._result)


class Later(StandIn):
    """Stands for a module of a later stage: ends the model's forward."""

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        """Leave with the hidden states that the module would have got."""
        raise Left(first_tensor((args, kwargs)))
