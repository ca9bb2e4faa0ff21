"""Simulated annealing over schedules: order and recomputation at once.

The moves are those of FastSA (Imanishi et al., NeurIPS 2023): add, remove, rotate. Where theirs tries one position at a
time, a move here weighs every position that it can reach and draws one by its energy.
"""

from collections.abc import Callable
from dataclasses import dataclass
from random import Random
from typing import TYPE_CHECKING

from memplan.plan.checkpoint.schedule.annealing.recompute import recompute
from memplan.plan.checkpoint.schedule.annealing.sequence import AcceptanceRule, LiveSequence, excess
from memplan.plan.checkpoint.schedule.annealing.shift import shift

if TYPE_CHECKING:
    from collections.abc import Sequence

    from memplan.plan.checkpoint.schedule.ordered import OrderedProblem


SHIFTS, RECOMPUTATIONS = 0.6, 0.3
"""Shares of the moves; the rest computes something once less."""
NEAR_BUDGET = 0.95
"""Share of the budget above which memory counts as short."""
NOISE = 50_000
"""Numbers of noise drawn in advance."""
BREATH = 100
"""Moves between two looks at the clock."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Cooling:
    """A cooling schedule: temperature falls and the weight of memory grows, both geometrically."""

    moves: int
    """How many are tried."""
    temperatures: tuple[float, float]
    """First and last, in units of the mean cost of a node."""
    weights: tuple[float, float]
    """First and last: cost of one mean value above the budget during the whole schedule, in mean costs."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Annealed:
    """The result of one run of annealing."""

    numbers: list[int] | None
    """The cheapest schedule within the budget; None: none came along."""
    extra_cost: float
    """Its cost above every node once; infinite without one."""
    last: list[int]
    """The schedule that stood at the end, within the budget or not."""


def anneal(
    problem: "OrderedProblem",
    start: "Sequence[int]",
    budget: int,
    cooling: Cooling,
    *,
    seed: int,
    elapsed: Callable[[], float],
) -> Annealed:
    """Anneal once.

    Args:
        problem: The problem.
        start: A valid schedule of it, of any peak.
        budget: Bytes that a result may take.
        cooling: Temperatures and length.
        seed: Of the draws; the same seed gives the same result unless time gets short.
        elapsed: Share of its time that is over. A slow machine cools in fewer moves rather than stopping while hot.

    Returns:
        The cheapest schedule within the budget that was met.
    """
    import numpy as np

    live = LiveSequence(problem, start, budget)
    noise = np.random.default_rng(seed).gumbel(size=NOISE)
    climate = AcceptanceRule(temperature=1.0, weight=0.0, random=Random(seed), noise=noise)  # noqa: S311 - no secrets here
    count = len(problem.sizes)
    mean_cost = sum(problem.costs) / count or 1.0
    mean_size = sum(problem.sizes) / count or 1.0
    best, best_cost = None, float("inf")
    for move in range(cooling.moves):
        if move % BREATH == 0:
            progress = max(move / cooling.moves, elapsed())
            if progress >= 1:
                break
            climate.temperature = mean_cost * _between(cooling.temperatures, progress)
            climate.weight = mean_cost / mean_size / count * _between(cooling.weights, progress)
        _move(live, climate)
        if live.extra < best_cost and live.memory.max() <= budget:
            best, best_cost = live.numbers(), live.extra
    return Annealed(numbers=best, extra_cost=best_cost, last=live.numbers())


def _between(ends: tuple[float, float], progress: float) -> float:
    return float(ends[0] * (ends[1] / ends[0]) ** progress)


def _move(live: LiveSequence, climate: AcceptanceRule) -> None:
    draw, length = climate.random.random(), len(live.row)
    position = int(climate.random.random() * length)
    if draw < SHIFTS:
        shift(live, int(live.row[position]), climate)
    elif draw < SHIFTS + RECOMPUTATIONS:
        # Where memory is plentiful nothing is gained; a few tries find a better place, or none is needed.
        for _ in range(3):
            if live.memory[position] > NEAR_BUDGET * live.budget:
                break
            position = int(climate.random.random() * length)
        recompute(live, position, climate)
    elif length > len(live.problem.sizes):
        again = [copy for copies in live.copies if len(copies) > 1 for copy in copies[1:]]
        forget(live, again[int(climate.random.random() * len(again))], climate)


def forget(live: "LiveSequence", computation: int, climate: AcceptanceRule) -> None:
    """Compute something once less: an earlier computation serves its readers instead.

    The first computation of a node is never left out.
    """
    before, _ = live.neighbours(computation)
    if before is None:
        return
    place, number = int(live.position[computation]), live.node[computation]
    ends = {source: live.end_without(source, computation) for source in live.inputs[computation]}
    kept_from = live.end(before) + 1
    low = min([kept_from, *(end + 1 for source, end in ends.items() if live.last[source] == computation)])
    memory = live.memory[low:place].copy()
    memory[kept_from - low :] += live.sizes[number] if live.readers[computation] else 0.0
    for source, end in ends.items():
        if live.last[source] == computation:
            memory[end + 1 - low :] -= live.sizes[live.node[source]]
    change = float(excess(memory, live.budget).sum() - excess(live.memory[low : place + 1], live.budget).sum())
    if not climate.accepts(climate.weight * change - live.problem.costs[number]):
        return
    live.memory[low:place] = memory
    readers = live.readers[computation]
    for reader in readers:
        live.inputs[reader][live.inputs[reader].index(computation)] = before
    live.readers[before] += readers
    live.last[before] = live.last[computation]
    live.readers[computation] = []
    _take_out(live, computation)


def _take_out(live: "LiveSequence", computation: int) -> None:
    """Remove a computation that nothing reads, and then those that only it read."""
    import numpy as np

    place, inputs = int(live.position[computation]), live.inputs[computation]
    live.row, live.memory = np.delete(live.row, place), np.delete(live.memory, place)
    live.position[live.row[place:]] -= 1
    live.leave(computation)
    for source in inputs:
        copies = live.copies[live.node[source]]
        if not live.readers[source] and len(copies) > 1:
            # It was kept up to here for nothing else; ``forget`` has taken that off already, so it stands alone.
            for own in live.inputs[source]:
                end = live.end_without(own, source)
                if live.last[own] == source:
                    live.memory[end + 1 : int(live.position[source])] -= live.sizes[live.node[own]]
            _take_out(live, source)
