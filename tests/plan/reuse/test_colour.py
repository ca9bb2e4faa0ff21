"""Whole slots: nobody shares one at a time, each holds its largest, and no plan with slots is below the bound."""

from itertools import product

import pytest
from hypothesis import given

from memplan.errors import UsageError
from memplan.plan.reuse import colour
from memplan.plan.reuse.check import problems_of
from memplan.plan.reuse.records import ArenaBuffer, Problem
from memplan.plan.reuse.result import best_of
from tests.plan.reuse.problems import load, moments, problems


def fewest_slot_bytes(problem):
    """By trying every assignment of buffers to slots."""
    sized = [b for b in problem.buffers if b.size and moments(b)]
    best = sum(b.size for b in sized)
    for slots in product(range(len(sized)), repeat=len(sized)):
        alike = [(i, j) for i in range(len(sized)) for j in range(i) if slots[i] == slots[j]]
        if not any(moments(sized[i]) & moments(sized[j]) for i, j in alike):
            used = set(slots)
            best = min(best, sum(max(b.size for b, s in zip(sized, slots, strict=True) if s == slot) for slot in used))
    return best


@given(problem=problems(most=5, fixed=False))
def test_slots_are_right_and_between_the_bound_and_no_reuse(problem):
    plan = colour.share_slots(problem)
    for i, one in enumerate(problem.buffers):
        assert plan.slots[i] == -1 or plan.sizes[plan.slots[i]] >= one.size
        assert (plan.slots[i] >= 0) == bool(one.size and moments(one))
        for j in range(i):
            shared = plan.slots[i] == plan.slots[j] >= 0
            assert not (shared and moments(one) & moments(problem.buffers[j]))
    assert load(problem) <= plan.bound <= fewest_slot_bytes(problem) <= plan.total


@given(problem=problems(fixed=False))
def test_slots_on_top_of_each_other_are_a_placement(problem):
    assert problems_of(problem, best_of(colour.solve(problem, time_limit=60))) == ()


def test_the_bound_counts_the_largest_of_every_moment():
    """Never more than 11 bytes at once, but a slot of 10 and one of 6 are needed."""
    found = ((0, 1, 10), (0, 1, 1), (1, 2, 5), (1, 2, 6))
    buffers = tuple(ArenaBuffer(name=str(i), start=a, end=b, size=s) for i, (a, b, s) in enumerate(found))
    plan = colour.share_slots(Problem(buffers=buffers))
    assert (load(Problem(buffers=buffers)), plan.bound, plan.total) == (11, 15, 15)


def test_what_slots_cannot_do_is_told():
    with pytest.raises(UsageError, match="fixed offset"):
        colour.share_slots(Problem(buffers=(ArenaBuffer(name="a", start=0, end=1, size=1, offset=0),)))
    many = tuple(ArenaBuffer(name=str(i), start=i, end=i + 1, size=1) for i in range(colour.MANY + 1))
    with pytest.raises(UsageError, match="too many"):
        colour.share_slots(Problem(buffers=many))
