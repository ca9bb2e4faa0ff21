"""Which trace proves most: that of a layout's plainest way, of which all others of that layout are slower.

It is worth its time where it does not fit, too, as long as it should be slower than the best. Of other micro-batches it
speaks once the smallest was compared with it. Of ways that only update otherwise, one at a time tells of the rest.
"""

from collections.abc import Callable, Iterable, Sequence

from memplan.plan.recommend.records import Group
from memplan.plan.recommend.space import Combination

APART: tuple[Group, ...] = ("parallel", "attention", "precision", "lora", "quantize")
"""Changes beside which all others only add to a step, or update otherwise."""
Told = Callable[[Combination], bool]


class Probes:
    """The plainest way of each layout.

    Args:
        ways: All of them.
        is_traced: Was a way traced?
        is_slower: Should a way be slower than the best?
    """

    def __init__(self, ways: Iterable[Combination], *, is_traced: Told, is_slower: Told) -> None:
        self._layouts: dict[tuple[str, ...], list[Combination]] = {}
        for each in sorted(ways, key=plainness):
            self._layouts.setdefault(_layout(each), []).append(each)
        self._is_traced, self._is_slower = is_traced, is_slower

    def of(self, ways: Sequence[Combination]) -> list[Combination]:
        """Return what to trace for ways that are not proved, in their order; pipelines, stage by stage, last."""
        layouts = {_layout(each): self._probe(self._layouts[_layout(each)]) for each in ways}
        found = [layouts[_layout(each)] or each for each in ways]
        most = max((each.candidate.spec.grad_accum for each in layouts.values() if each), default=1)
        chosen: dict[tuple[str, ...], Combination] = {}
        for each in found:
            if layouts[_layout(each)] is not each or each.candidate.spec.grad_accum in (1, most):
                chosen.setdefault(_passes(each), each)
        return sorted(chosen.values(), key=_stages)

    def _probe(self, layout: Sequence[Combination]) -> Combination | None:
        """The plainest way of a layout where nothing is known of that, or where it should prove the rest."""
        plainest = layout[0]
        if not self._is_traced(plainest):
            return plainest if self._is_slower(plainest) or not any(map(self._is_traced, layout)) else None
        smallest = min(layout, key=_smallness)
        return smallest if self._is_slower(plainest) and not self._is_traced(smallest) else None


def plainness(way: Combination) -> tuple[int, int, int]:
    """Return an order in which a way comes before all that add to it."""
    spec = way.candidate.spec
    added = (spec.checkpoint != "none") + spec.offload_activations + (spec.loss_chunks > 1)
    return added, spec.grad_accum, len(way.changes)


def _layout(way: Combination) -> tuple[str, ...]:
    return tuple(change.text for change in way.changes if change.group in APART)


def _smallness(way: Combination) -> tuple[int, int, int]:
    added, accumulated, changes = plainness(way)
    return added, -accumulated, changes


def _passes(way: Combination) -> tuple[str, ...]:
    """What tells the passes of a way from those of others."""
    spec = way.candidate.spec
    kept = (change.text for change in way.changes if change.group not in ("optimizer", "optimizer-step"))
    return (*kept, str(spec.batch_size))


def _stages(way: Combination) -> int:
    return way.candidate.spec.parallel.pipeline
