"""Ends that measured runs earn: distribution-free quantiles of their residuals, by class of workload.

A residual is ln(measured / predicted). Of n exchangeable ones, the ceil((n + 1) q)-th smallest is an upper end that the
next one stays below with probability q at least, whatever their distribution (split conformal prediction: Vovk,
Gammerman, Shafer, "Algorithmic Learning in a Random World", 2005; Lei et al., "Distribution-Free Predictive Inference
for Regression", 2018). Half of what may miss is allowed at each end, because a run that needs more than predicted and
one that needs less are different misfortunes.

That law is of runs of the sources that are known, and a user is another source. So a class has ends of its own only if
they prove good for sources that they do not know: each source left out in turn, as large a share of its figures as the
level says must lie between the ends that the others earn. Twenty runs of three sources whose ends held fifteen that way
are no ninety per cent.

A class without ends of its own has those of all whole runs pooled: those of the class that is furthest
off, and beyond them once more what separates it from the next. Nothing is claimed of their level; leaving out one class
after the other shows what they are worth (``benchmarks/interval_coverage.py``).
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

LEVEL_PERCENT = 90
"""Runs in a hundred that an interval should hold."""
FEWEST_SOURCES = 2
"""Runs of one source share its code and its habits: however many, they do not show how far off the next source is."""
ALONE = frozenset({"kernel", "init", "cpu"})
"""Classes that say nothing of others, nor others of them: single kernels and bare models are no whole runs, and a CPU
is no GPU."""
BOUNDED = frozenset({"cnn"})
"""Classes whose runs earn no ends: how far they are off is what cuDNN takes, of which each job has its own bounds."""
NOT_POOLED = ALONE | BOUNDED | {"compiled", "sharded"}
"""Classes that say nothing of others. Compiled code has the buffers that one version of Inductor chose, and what a
sharded step gathers goes by the release of torch; how far those are off tells nothing of an eager step on one GPU, but
what that shows holds for the rest of such steps."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Residual:
    """One measured figure beside its prediction."""

    id: str
    """Which run."""
    source: str
    """Who measured it."""
    workload: str
    """Class of workload."""
    figure: str
    """``requested``, ``allocated`` or ``reserved``."""
    value: float
    """ln(measured / predicted)."""
    torch: str = ""
    """Release of torch that ran; empty where the source does not say."""


class Ends(NamedTuple):
    """Lower and upper end of ln(measured / predicted)."""

    low: float
    high: float

    def hold(self, value: float) -> bool:
        """Does a residual lie between them?"""
        return self.low <= value <= self.high


class Earned(NamedTuple):
    """Ends and what they are from."""

    ends: Ends
    runs: int
    sources: int
    pooled: bool


def rank(count: int, percent: int = LEVEL_PERCENT) -> int:
    """Which of ``count`` residuals, in ascending order from 1, is the upper end; more than ``count`` if none is."""
    return -(-(count + 1) * (100 + percent) // 200)


def fewest(percent: int = LEVEL_PERCENT) -> int:
    """The least number of residuals that has ends of its own."""
    return -(-(100 + percent) // (100 - percent))


def quantiles(values: Sequence[float], percent: int = LEVEL_PERCENT) -> Ends | None:
    """Ends of a class; None where there are too few values for the level."""
    upper = rank(len(values), percent)
    if upper > len(values):
        return None
    ordered = sorted(values)
    return Ends(ordered[-upper], ordered[upper - 1])


def _widest(values: Sequence[float], percent: int) -> Ends:
    return quantiles(values, percent) or Ends(min(values), max(values))


def pooled(classes: Iterable[Sequence[float]], percent: int = LEVEL_PERCENT) -> Ends:
    """Ends for a class that was not measured, from those that were (at least one, none of them empty)."""
    ends = [_widest(values, percent) for values in classes]
    lows, highs = sorted(each.low for each in ends), sorted((each.high for each in ends), reverse=True)
    # A lone class has only the perfect prediction to stand out from.
    return Ends(_one_more(*lows[:2]), _one_more(*highs[:2]))


def _one_more(furthest: float, following: float = 0.0) -> float:
    return furthest + (furthest - following)


def earn(residuals: Iterable[Residual], workload: str, figure: str, percent: int = LEVEL_PERCENT) -> Earned | None:
    """Ends of one figure for a class of workload; None where neither it nor all classes together have enough runs."""
    rows = [each for each in residuals if each.figure == figure]
    own = [each for each in rows if each.workload == workload]
    ends = quantiles([each.value for each in own], percent)
    enough = ends and _sources(own) >= FEWEST_SOURCES and workload not in BOUNDED
    if ends and enough and _hold_other_sources(rows, workload, figure, percent):
        return Earned(ends, len(own), _sources(own), pooled=False)
    also = "" if workload in BOUNDED else workload
    return None if workload in ALONE else earn_pooled(rows, figure, percent, also=also)


def _hold_other_sources(rows: Sequence[Residual], workload: str, figure: str, percent: int) -> bool:
    """Do ends hold as many figures of a class as the level says, each made without the source that it is tried on?

    Where the other sources earn no ends, their own runs count, the furthest if they are too few: that is the stricter.
    """
    own = [each for each in rows if each.workload == workload]
    held = 0
    for source in {each.source for each in own}:
        rest = [each for each in rows if each.source != source]
        earned = earn(rest, workload, figure, percent)
        known = [each.value for each in rest if each.workload == workload]
        ends = earned.ends if earned else _widest(known, percent)
        held += sum(ends.hold(each.value) for each in own if each.source == source)
    return 100 * held >= percent * len(own)


def earn_pooled(
    residuals: Iterable[Residual], figure: str, percent: int = LEVEL_PERCENT, *, also: str = ""
) -> Earned | None:
    """Ends of one figure for a class that was not measured enough; None where all together have too few runs.

    Args:
        residuals: All of them.
        figure: Of which figure.
        percent: The level, for classes that have it.
        also: The class itself, whose own few runs are held even where those of its kind are not pooled.
    """
    rows = [each for each in residuals if each.figure == figure]
    common = [each for each in rows if each.workload not in NOT_POOLED]
    own = [each for each in rows if each.workload == also and also in NOT_POOLED]
    if len(common) + len(own) < fewest(percent) or not common:
        return None
    values: dict[str, list[float]] = {}
    for each in common:
        values.setdefault(each.workload, []).append(each.value)
    ends = pooled(values.values(), percent)
    mine = [each.value for each in own]
    ends = Ends(min(ends.low, *mine), max(ends.high, *mine)) if mine else ends
    return Earned(ends, len(common) + len(own), _sources([*common, *own]), pooled=True)


def _sources(rows: Iterable[Residual]) -> int:
    return len({each.source for each in rows})


class Coverage(NamedTuple):
    """How many figures lay between the ends that others earned."""

    held: int
    tried: int


def coverage(
    residuals: Sequence[Residual], workload: str, figure: str, apart: Callable[[Residual, Residual], bool]
) -> Coverage:
    """Hold each figure of a class against the ends from residuals that are ``apart`` from it.

    Args:
        residuals: All of them.
        workload: The class.
        figure: Of which figure.
        apart: Given the figure that is tried and another: may the other be known?

    Returns:
        The counts; figures for which the others earn no ends are not tried.
    """
    held = tried = 0
    for row in residuals:
        if (row.workload, row.figure) == (workload, figure):
            earned = earn((each for each in residuals if apart(row, each)), workload, figure)
            tried += earned is not None
            held += earned is not None and earned.ends.hold(row.value)
    return Coverage(held, tried)


def other_run(row: Residual, each: Residual) -> bool:
    """Leaves one run out, whichever of its figures."""
    return each.id != row.id


def other_source(row: Residual, each: Residual) -> bool:
    """Leaves everything of one source out: tables of one code are no independent runs."""
    return each.source != row.source


def other_class(row: Residual, each: Residual) -> bool:
    """Leaves the whole class out, as if it had never been measured."""
    return each.workload != row.workload
