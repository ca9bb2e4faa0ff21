"""memplan: plan the memory of a PyTorch step before renting a GPU."""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from memplan.runtime.checkpoint.apply import apply as apply

__all__ = ["apply"]


def __getattr__(name: str) -> Any:
    """``memplan.apply``, which needs torch, is imported when it is asked for."""
    if name == "apply":
        from memplan.runtime.checkpoint.apply import apply

        return apply
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
