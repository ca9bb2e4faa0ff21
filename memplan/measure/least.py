"""What a change surely leaves of a peak: where that is more than the device has, nobody needs to trace the change."""

from typing import Final

from memplan.job.spec import Halved
from memplan.lifetime.records import Category
from memplan.measure.records import Estimate

_SHARE: Final[dict[Halved, int]] = {"layers": 2, "hidden": 4, "experts": 2}
"""What is halved leaves at least so large a part of every storage: of a matrix both sides may be halved."""


def least_after(estimate: Estimate, keeps: frozenset[Category]) -> int:
    """Bytes alive at the moment of the peak after a change that leaves what is of some categories there.

    An optimizer's own moment is gone with it, so that nothing is known of a peak there.
    """
    if estimate.peak.phase == "optimizer":
        return 0
    return sum(estimate.breakdown.get(each, 0) for each in keeps)


def least_of_half(estimate: Estimate, what: Halved) -> int:
    """The same, of a model with half of something."""
    return sum(estimate.breakdown.get(each, 0) for each in Category) // _SHARE[what]
