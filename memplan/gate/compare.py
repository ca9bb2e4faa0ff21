"""What grew between two estimates of one job on one GPU, and between two sets of them."""

from collections.abc import Sequence
from dataclasses import dataclass

from memplan.gate.records import Comparison, Growth
from memplan.gate.saved import Entries
from memplan.measure.document import BREAKDOWN_ORDER
from memplan.measure.records import Estimate, Owner, Verdict
from memplan.units import Bytes

_Key = tuple[str, str]


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


def with_figures(estimate: Estimate | None) -> Estimate | None:
    """Return the estimate, if there is one and it has figures."""
    return None if estimate is None or estimate.verdict is Verdict.UNKNOWN else estimate


def compare_figures(before: Estimate | None, after: Estimate | None) -> Comparison | None:
    """Compare two estimates; None where one of them has no figures."""
    known = with_figures(before), with_figures(after)
    return compare(known[0], known[1]) if known[0] and known[1] else None


def compare(before: Estimate, after: Estimate) -> Comparison:
    """Compare two estimates that have figures.

    Owners are matched by module and category: the line that a module is written in moves with every commit.

    Every category is compared, and every module whose bytes at the peak changed, the largest growth first.
    """
    old, new = _by_module(before.owners), _by_module(after.owners)
    growth = [
        Growth(
            module=module,
            category=category,
            source=_largest(new.get((module, category), ())),
            before=_total(old.get((module, category), ())),
            after=_total(new.get((module, category), ())),
        )
        for module, category in old | new
    ]
    return Comparison(
        before=before,
        after=after,
        categories={name: (Bytes(before.breakdown.get(name, 0)), Bytes(after.breakdown.get(name, 0))) for name in
                    dict.fromkeys((*BREAKDOWN_ORDER, *before.breakdown, *after.breakdown))},
        growth=tuple(sorted((each for each in growth if each.grown), key=_first_largest)),
    )  # fmt: skip


def _by_module(owners: Sequence[Owner]) -> dict[_Key, list[Owner]]:
    found: dict[_Key, list[Owner]] = {}
    for owner in owners:
        found.setdefault((owner.module, owner.category), []).append(owner)
    return found


def _total(owners: Sequence[Owner]) -> Bytes:
    return Bytes(sum(owner.bytes for owner in owners))


def _largest(owners: Sequence[Owner]) -> str:
    """The line that owns most of them, of those that are known."""
    told = [owner for owner in owners if owner.source]
    return max(told, key=lambda owner: owner.bytes).source if told else ""


def _first_largest(growth: Growth) -> tuple[int, str, str]:
    return -growth.grown, growth.module, growth.category


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
