"""memplan: plan the memory of a PyTorch step before renting a GPU."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from memplan.plan.reuse.arena import plan_arena as plan_arena
    from memplan.plan.reuse.arena import plan_graph as plan_graph
    from memplan.runtime.checkpoint.apply import apply as apply

_HOMES = {
    "apply": "memplan.runtime.checkpoint.apply",
    "plan_arena": "memplan.plan.reuse.arena",
    "plan_graph": "memplan.plan.reuse.arena",
}
"""Name → module. All of them need torch, so that each is imported when it is asked for."""

__all__ = ["apply", "plan_arena", "plan_graph"]


def __getattr__(name: str) -> Any:
    """What a training process imports."""
    if name in _HOMES:
        return getattr(import_module(_HOMES[name]), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
