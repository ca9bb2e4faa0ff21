"""A static plan for every step of a workload: which buffers have a place of their own, and where."""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from memplan.errors import MemplanError
from memplan.plan.reuse import greedy
from memplan.plan.reuse.check import problems_of
from memplan.plan.reuse.records import ArenaBuffer, FeasiblePlacement, OptimalPlacement, Problem
from memplan.plan.reuse.result import bound_of
from memplan.replay.policy import MIN_BLOCK
from memplan.replay.static_plan import Slot
from memplan.simulate.family import Family, Stretch
from memplan.simulate.records import Workload

SECONDS = 60.0
"""Most time for one stretch: enough for every ordering on tens of thousands of buffers."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StepPlan:
    """Places for the buffers that are born and freed within one step, at the longest length that is played."""

    slots: Mapping[Stretch, tuple[Slot | None, ...]]
    """Stretch → place of each of its allocations; None for those served online."""
    arena_bytes: int
    """End of the highest place in any stretch."""
    floor: int
    """Most planned bytes alive at once in any stretch: no plan has a smaller arena."""
    ordering: str
    """Which ordering placed the highest stretch."""
    notes: tuple[str, ...]
    """What was left out."""


def plan_steps(workload: Workload) -> StepPlan:
    """Plan every stretch of every family that a workload plays."""
    longest: dict[int, tuple[Family, int]] = {}
    for length in sorted(set(workload.lengths)):
        family, fitting = workload.families.of(length)
        longest[id(family)] = family, fitting
    slots: dict[Stretch, tuple[Slot | None, ...]] = {}
    results: list[OptimalPlacement | FeasiblePlacement] = []
    for family, length in longest.values():
        sizes = family.sizes_at(length)
        for stretch in set(family.stretches):
            slots[stretch], result = plan_stretch(stretch, sizes)
            results.append(result)
    highest = max(results, key=lambda result: result.placement.height)
    streams = {call.stream for stretch in slots for call in stretch if not call.is_free}
    return StepPlan(
        slots=slots,
        arena_bytes=highest.placement.height,
        floor=max(bound_of(result) for result in results),
        ordering=highest.method,
        notes=("buffers of other CUDA streams than the busiest are served online",) if len(streams) > 1 else (),
    )


def plan_stretch(
    stretch: Stretch, sizes: Sequence[int]
) -> tuple[tuple[Slot | None, ...], OptimalPlacement | FeasiblePlacement]:
    """Places for the allocations of one stretch.

    Returns:
        One place per allocation in order, None where it is served online: what outlives the stretch, or lies on another
        stream than the busiest (its end is not ordered against the others' begin); and how the placement ended.

    Raises:
        MemplanError: The placement is wrong, by a check of its own.
    """
    streams = Counter(call.stream for call in stretch if not call.is_free)
    busiest = streams.most_common(1)[0][0] if streams else 0
    ends = {call.key: event for event, call in enumerate(stretch) if call.is_free}
    planned: list[int | None] = []
    buffers: list[ArenaBuffer] = []
    for event, call in enumerate(stretch):
        if call.is_free:
            continue
        size, end = -(-sizes[call.size] // MIN_BLOCK) * MIN_BLOCK, ends.get(call.key, -1)
        if size and end > event and call.stream == busiest:
            planned.append(len(buffers))
            buffers.append(ArenaBuffer(name=str(event), start=event, end=end, size=size))
        else:
            planned.append(None)
    problem = Problem(buffers=tuple(buffers))
    result = greedy.solve(problem, time_limit=SECONDS)
    # Without a capacity and fixed offsets, there always is a placement.
    assert isinstance(result, OptimalPlacement | FeasiblePlacement)  # noqa: S101
    if wrong := problems_of(problem, result.placement):
        raise MemplanError(f"a static plan is wrong: {wrong[0]}")
    offsets = result.placement.offsets
    slots = tuple(None if index is None else Slot(offset=offsets[index], size=buffers[index].size) for index in planned)
    return slots, result
