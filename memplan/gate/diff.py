"""What changed between two sets of estimates, job by job."""

from dataclasses import dataclass

from memplan.gate.compare import compare_figures
from memplan.gate.records import Comparison
from memplan.gate.saved import Entries
from memplan.measure.records import Estimate


@dataclass(frozen=True, slots=True, kw_only=True)
class RowChange:
    """One job on one GPU, before and after."""

    job: str
    """Its name, or its target where it has none."""
    gpu: str
    """The profile's name."""
    before: Estimate | None
    """None: it is new."""
    after: Estimate | None
    """None: it is gone."""
    comparison: Comparison | None
    """Of the two; None where one of them has no figures."""

    @property
    def grown(self) -> int:
        """Bytes of the device peak more than before; 0 where that is not known."""
        return self.comparison.grown if self.comparison else 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Diff:
    """Two sets of estimates."""

    base: str
    """What the user calls the first: a file or a revision."""
    head: str
    """The second."""
    changes: tuple[RowChange, ...]
    """Every job and GPU of either, the largest growth first."""


def difference(base: Entries, head: Entries, *, names: tuple[str, str]) -> Diff:
    """Match two sets of estimates by job and GPU.

    ``names`` are what the user calls them. Where each has estimates of one job alone, the two are compared whatever
    they are called: a target moves.
    """
    base = _called_alike(base, head)
    changes = []
    for job, gpu in dict.fromkeys([*base, *head]):
        before, after = base.get((job, gpu)), head.get((job, gpu))
        comparison = compare_figures(before, after)
        changes.append(RowChange(job=job, gpu=gpu, before=before, after=after, comparison=comparison))
    ordered = sorted(changes, key=lambda change: (-change.grown, change.job, change.gpu))
    return Diff(base=names[0], head=names[1], changes=tuple(ordered))


def _called_alike(base: Entries, head: Entries) -> dict[tuple[str, str], Estimate]:
    jobs = {job for job, _ in base}
    others = {job for job, _ in head}
    if len(jobs) == len(others) == 1:
        (name,) = others
        return {(name, gpu): estimate for (_, gpu), estimate in base.items()}
    return dict(base)
