"""The check says that something is wrong exactly where something is, by an oracle that looks at every byte."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from memplan.plan.reuse import greedy
from memplan.plan.reuse.check import problems_of
from memplan.plan.reuse.decompose import placed
from memplan.plan.reuse.records import ArenaBuffer, ArenaPlacement, Problem
from memplan.plan.reuse.result import best_of
from tests.plan.reuse.problems import problems, right


@given(problem=problems(), data=st.data())
def test_the_check_agrees_with_looking_at_every_byte(problem, data):
    offsets = tuple(
        data.draw(st.integers(-1, 25)) if b.offset is None or data.draw(st.booleans()) else b.offset
        for b in problem.buffers
    )
    capacity = data.draw(st.none() | st.integers(0, 30))
    asked = replace(problem, capacity=capacity)
    assert bool(problems_of(asked, placed(problem.buffers, offsets))) != right(problem, offsets, capacity)


@given(problem=problems(), data=st.data())
def test_every_mutation_of_a_right_placement_is_caught(problem, data):
    """One buffer elsewhere, longer, larger: the check objects exactly where the oracle does."""
    placement = best_of(greedy.solve(problem, time_limit=60))
    assert problems_of(problem, placement) == ()
    if not problem.buffers:
        return
    at = data.draw(st.integers(0, len(problem.buffers) - 1))
    offsets, buffers = list(placement.offsets), list(problem.buffers)
    change = data.draw(st.sampled_from(("moved", "longer", "larger", "without gaps", "turned")))
    if change == "moved":
        offsets[at] = data.draw(st.integers(-3, 30))
    elif change == "turned":
        other = data.draw(st.integers(0, len(buffers) - 1))
        offsets[at], offsets[other] = offsets[other], offsets[at]
    else:
        longer = {"start": buffers[at].start - 2, "end": buffers[at].end + 2}
        changes = {"longer": longer, "larger": {"size": buffers[at].size + 1}, "without gaps": {"gaps": ()}}
        buffers[at] = replace(buffers[at], **changes[change])
    mutated = replace(problem, buffers=tuple(buffers))
    assert bool(problems_of(mutated, placed(buffers, offsets))) != right(mutated, offsets)


TWO = Problem(
    buffers=(
        ArenaBuffer(name="a", start=0, end=2, size=10),
        ArenaBuffer(name="b", start=1, end=3, size=10, alignment=5),
    )
)


@pytest.mark.parametrize(("offsets", "height", "said"), [
    ((0, 10), 20, ()), ((0, 5), 15, ("buffers a and b overlap",)),
    ((-1, 10), 20, ("buffer a begins before the arena, at -1",)),
    ((0, 11), 21, ("buffer b at 11 is not aligned to 5",)),
    ((0, 10), 15, ("the height is said to be 15; buffer b ends at 20",)),
    ((0, 10), 25, ("the height is said to be 25; buffer b ends at 20",)), ((0,), 10, ("1 offsets for 2 buffers",)),
])  # fmt: skip
def test_the_check_names_what_is_wrong(offsets, height, said):
    assert problems_of(TWO, ArenaPlacement(offsets=offsets, height=height)) == said


def test_the_check_knows_fixed_offsets_and_the_capacity():
    fixed = replace(TWO, buffers=(replace(TWO.buffers[0], offset=4), TWO.buffers[1]), capacity=19)
    assert problems_of(fixed, ArenaPlacement(offsets=(0, 10), height=20)) == (
        "buffer a lies at 0, and must at 4",
        "buffer b ends at 20, above the capacity of 19",
    )
