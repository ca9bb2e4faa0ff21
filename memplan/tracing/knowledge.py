"""What is known of the elements of a fake tensor."""

from dataclasses import dataclass

import torch

SMALL = 256
"""Most elements of a tensor whose value is kept."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Knowledge:
    """What is known of a tensor's elements."""

    value: torch.Tensor | None = None
    """The elements themselves, a real tensor."""
    drawn: torch.Tensor | None = None
    """The elements as they were drawn at random: as good as any, and not to be relied on."""
    density: float | None = None
    """Share of true (non-zero) elements."""
    is_assumed: bool = False
    """Is the density, or the value, nothing but an assumption?"""
    classes: int | None = None
    """Elements are indices below this, evenly spread."""
    last: int | None = None
    """One element is this, and none is greater: where an ``arange`` ends."""
    bound: int | None = None
    """Elements are integers from 0 to this: counts and lengths."""
    uniform: bool = False
    """Elements are drawn evenly from [0, 1)."""


NOTHING = Knowledge()
