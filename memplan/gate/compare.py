"""What grew between two estimates of one job on one GPU."""

from collections.abc import Sequence

from memplan.gate.records import Comparison, Growth
from memplan.measure.document import BREAKDOWN_ORDER
from memplan.measure.records import Estimate, Owner, Verdict
from memplan.units import Bytes

_Key = tuple[str, str]


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
