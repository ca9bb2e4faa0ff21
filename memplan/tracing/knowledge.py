"""What is known of the elements of a fake tensor."""

from dataclasses import dataclass

import torch

from memplan.tracing.routing import MOST_EXPERTS

SMALL = 256
"""Most elements of a tensor whose value is kept."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Shares:
    """Of a mask that tells classes apart along one dimension: how dense it is for each of them."""

    axis: int
    """The dimension, counted from the first."""
    each: tuple[float, ...]
    """Of each class, share of true elements."""


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
    top: int | None = None
    """Indices are chosen by their scores, so many different ones for each token (``topk``): a router's choice."""
    tally: tuple[int, ...] | None = None
    """How many elements are each of the indices."""
    shares: Shares | None = None
    """Density of each class of a mask whose classes are not all as frequent."""
    is_routed: bool = False
    """Does the density follow from how a router chooses?"""
    last: int | None = None
    """One element is this, and none is greater: where an ``arange`` ends."""
    bound: int | None = None
    """Elements are integers from 0 to this: counts and lengths."""
    uniform: bool = False
    """Elements are drawn evenly from [0, 1)."""


NOTHING = Knowledge()


def is_choice(known: Knowledge) -> bool:
    """Are these the experts that a router chose?"""
    return known.top is not None and known.classes is not None and known.classes <= MOST_EXPERTS
