"""States of the CPU's random generator: C++ makes them, as real tensors also in a trace, and no dispatch mode sees it.

``torch.utils.checkpoint`` keeps one per block from its first run to its second, and ``fork_rng`` one more while the
second lasts. All of torch's Python asks for them through ``torch.random``. Where a GPU is played they lie on the host.
"""

from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any

import torch

from memplan.seam.replace import Replacement, replaced
from memplan.tracing.calls import Operator

OPERATOR = Operator(
    name="torch.get_rng_state",
    composite=False,
    is_view=False,
    is_silent=False,
    mutated=(),
    mutated_keywords=(),
    flops=None,
    scratch=None,
)
"""What asking for a state is, as the recorder sees it."""


def get_state() -> torch.Tensor:
    """The state of the default generator, unseen."""
    return torch.default_generator.get_state()


def watching_states(ask: Callable[[], torch.Tensor]) -> AbstractContextManager[None]:
    """Ask for states in another way while the context lasts.

    Args:
        ask: Called instead of ``torch.default_generator.get_state`` by all functions of ``torch.random``.
    """
    return replaced((Replacement("torch.random.default_generator", _Watched(ask)),))


class _Watched:
    """The default generator, whose own methods nothing can replace.

    Args:
        ask: Its ``get_state``.
    """

    def __init__(self, ask: Callable[[], torch.Tensor]) -> None:
        self.get_state = ask

    def __getattr__(self, name: str) -> Any:
        return getattr(torch.default_generator, name)
