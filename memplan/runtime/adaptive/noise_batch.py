"""A batch that follows the gradient noise scale, smoothed and within bounds. Pure.

B ← clip(alpha · B_opt + (1 - alpha) · B), with the noise scale as B_opt: there the noise of a step weighs as much as
its gradient (``memplan.runtime.adaptive.noise_scale``). The scale is noisy, so that a change goes a part of the way.
"""

import math
from dataclasses import dataclass

from memplan.errors import UsageError, several
from memplan.runtime.adaptive.noise_scale import NoiseScale


@dataclass(frozen=True, slots=True, kw_only=True)
class NoisePolicy:
    """How a batch follows the noise scale.

    Raises:
        UsageError: The numbers make no sense together.
    """

    least: int = 1
    """Smallest batch."""
    most: int
    """Largest batch: what memory allows (``memplan.find_batch``, ``memplan batch``)."""
    smoothing: float = 0.1
    """alpha, the share of the way to the noise scale that one change goes. A choice: after 20 changes an eighth of a
    difference is left."""
    multiple: int = 1
    """Batches are multiples of this, as of ranks x micro-batch."""

    def __post_init__(self) -> None:
        rules = {
            f"least must be at least 1, and most no less, not {self.least} and {self.most}": (
                1 <= self.least <= self.most
            ),
            f"smoothing must be above 0 and at most 1, not {self.smoothing}": 0 < self.smoothing <= 1,
            f"a multiple of {self.multiple} must lie between {self.least} and {self.most}": (
                self.multiple >= 1 and self.most // self.multiple * self.multiple >= self.least
            ),
        }
        if wrong := [what for what, holds in rules.items() if not holds]:
            raise several(wrong)


def next_wanted(policy: NoisePolicy, wanted: float, noise_scale: NoiseScale | float) -> float:
    """The batch that is wanted after a measurement of the noise scale; not rounded, so that small changes add up.

    Args:
        policy: How it follows.
        wanted: What was wanted before; at the beginning the batch itself.
        noise_scale: In samples, or averages of which it is not known yet: then nothing changes.

    Raises:
        UsageError: The scale is no positive number.
    """
    if isinstance(noise_scale, NoiseScale):
        best = noise_scale.samples if noise_scale.is_known else wanted
    else:
        best = noise_scale
    if not 0 < best < math.inf:
        raise UsageError(f"a noise scale is a positive number of samples, not {best}")
    smoothed = policy.smoothing * best + (1 - policy.smoothing) * wanted
    return min(max(smoothed, float(policy.least)), float(policy.most))


def batch_of(policy: NoisePolicy, wanted: float) -> int:
    """The nearest batch that a policy allows to the one that is wanted."""
    least = -(-policy.least // policy.multiple) * policy.multiple
    most = policy.most // policy.multiple * policy.multiple
    return min(max(round(wanted / policy.multiple) * policy.multiple, least), most)
