"""Gradient noise scale: how large a batch is worth it (McCandlish et al. 2018, arXiv:1812.06162). Pure.

Of gradients over batches of two sizes, E|G_B|² = |G|² + tr(Σ)/B: two equations for the true gradient's square and the
trace of the covariance of one sample's gradient (appendix A.1 there). B_simple = tr(Σ)/|G|² is the batch where the
noise weighs as much as the gradient; ``memplan recommend --noise-scale`` says what that means for a batch.
"""

import math
from dataclasses import dataclass
from typing import NamedTuple

from memplan.errors import UsageError, several


class GradientMoments(NamedTuple):
    """Unbiased estimates from one step; noisy, and not always positive."""

    squared_norm: float
    """Of the true gradient: |G|²."""
    covariance_trace: float
    """Of one sample's gradient: tr(Σ)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class NoiseScale:
    """Averages over steps. Averages of both moments, not of their ratio: a ratio of noisy numbers is biased."""

    squared_norm: float = 0.0
    """Sum of |G|² with decaying weights."""
    covariance_trace: float = 0.0
    """Sum of tr(Σ) likewise."""
    weight: float = 0.0
    """Sum of the weights."""
    steps: int = 0
    """How many went in."""
    decay: float = 0.99
    """Weight of a step against that of the one after it; 1 weighs all the same."""

    @property
    def moments(self) -> GradientMoments:
        """Weighted means; NaN before the first step."""
        if not self.weight:
            return GradientMoments(math.nan, math.nan)
        return GradientMoments(self.squared_norm / self.weight, self.covariance_trace / self.weight)

    @property
    def is_known(self) -> bool:
        """Have enough steps gone in for both means to be positive? If not, the ratio says nothing."""
        return all(moment > 0 for moment in self.moments)

    @property
    def samples(self) -> float:
        """B_simple.

        Raises:
            UsageError: It is not known yet.
        """
        if not self.is_known:
            squared, trace = self.moments
            raise UsageError(
                f"the noise scale is not known after {self.steps} steps: |G|² {squared:.3g}, tr(Σ) {trace:.3g}",
                hint="both must be positive: average over more steps (decay nearer to 1), or take larger micro-batches",
            )
        return self.covariance_trace / self.squared_norm


def moments_of(*, small: float, small_batch: float, big: float, big_batch: float) -> GradientMoments:
    """Moments from squared norms of gradients over batches of two sizes.

    Args:
        small: |G_small|²: the mean of several, where there are several.
        small_batch: Samples that each of these gradients is the mean of.
        big: |G_big|²
        big_batch: Samples likewise; more.

    Raises:
        UsageError: The batches are not of two sizes.
    """
    if not 0 < small_batch < big_batch:
        raise UsageError(f"two sizes of batches are needed, the small one first, not {small_batch:g} and {big_batch:g}")
    return GradientMoments(
        squared_norm=(big_batch * big - small_batch * small) / (big_batch - small_batch),
        covariance_trace=(small - big) / (1 / small_batch - 1 / big_batch),
    )


def moments_of_parts(squared_norms: list[float], samples: list[int], *, whole: float) -> GradientMoments:
    """Moments from the gradients of micro-batches, or of ranks, and their mean. The parts may differ in size.

    Args:
        squared_norms: Of each part's mean gradient.
        samples: In each part.
        whole: Squared norm of the whole batch's mean gradient, by samples.

    Returns:
        With w_i the parts' shares, Σ w_i|g_i|² has the expectation |G|² + tr(Σ)·k/B for k parts of B samples
        together, as if all were of B/k samples.

    Raises:
        UsageError: There are not two parts.
    """
    total = sum(samples)
    small = sum(norm * count for norm, count in zip(squared_norms, samples, strict=True)) / max(total, 1)
    parts = sum(count > 0 for count in samples)
    return moments_of(small=small, small_batch=total / max(parts, 1), big=whole, big_batch=total)


def with_step(scale: NoiseScale, moments: GradientMoments) -> NoiseScale:
    """The averages after one more step.

    Raises:
        UsageError: The decay is not above 0 and at most 1, or a moment is no number.
    """
    wrong = [] if 0 < scale.decay <= 1 else [f"decay must be above 0 and at most 1, not {scale.decay}"]
    if not all(map(math.isfinite, moments)):
        wrong.append(f"the moments of a step are no numbers: {tuple(moments)}; leave out steps that overflow")
    if wrong:
        raise several(wrong)
    return NoiseScale(
        squared_norm=scale.decay * scale.squared_norm + moments.squared_norm,
        covariance_trace=scale.decay * scale.covariance_trace + moments.covariance_trace,
        weight=scale.decay * scale.weight + 1,
        steps=scale.steps + 1,
        decay=scale.decay,
    )
