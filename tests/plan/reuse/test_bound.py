"""Bounds: the load by brute force, what alignment adds, and that they only grow."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from memplan.plan.reuse.bound import lower_bound
from memplan.plan.reuse.granularity import grain_of
from memplan.plan.reuse.records import ArenaBuffer, Problem
from tests.plan.reuse.problems import load, lowest_height, problems


@given(problem=problems(fixed=False), plain=problems(aligned=False, fixed=False))
def test_the_load_is_what_is_alive_at_once(problem, plain):
    largest = max((buffer.size for buffer in plain.buffers), default=0)
    assert lower_bound(plain).bytes == max(load(plain), largest)
    assert lower_bound(problem).bytes >= load(problem)


@given(problem=problems(most=5))
def test_no_placement_is_below_the_bound(problem):
    assert lower_bound(problem).bytes <= lowest_height(problem)


@given(problem=problems(), data=st.data())
def test_another_buffer_never_lowers_the_bound(problem, data):
    if not problem.buffers:
        return
    without = data.draw(st.integers(0, len(problem.buffers) - 1))
    fewer = replace(problem, buffers=(*problem.buffers[:without], *problem.buffers[without + 1 :]))
    assert lower_bound(fewer).bytes <= lower_bound(problem).bytes


def test_alignment_adds_all_paddings_but_the_largest():
    buffers = tuple(
        ArenaBuffer(name=str(i), start=0, end=1, size=size, alignment=10) for i, size in enumerate((1, 8, 10))
    )
    assert lower_bound(Problem(buffers=buffers)).bytes == 10 + 10 + 1
    beside = ArenaBuffer(name="unaligned", start=0, end=1, size=3)
    assert lower_bound(Problem(buffers=(*buffers, beside))).bytes == 22


def test_the_reason_names_what_bounds():
    high = ArenaBuffer(name="high", start=0, end=1, size=1, offset=99)
    assert lower_bound(Problem(buffers=(high,))).reason == "buffer high must lie at 99"
    low = ArenaBuffer(name="low", start=4, end=6, size=500)
    assert lower_bound(Problem(buffers=(low, high))).reason == "buffers need 500 bytes at moment 4"


def test_gaps_all_over_a_lifespan_leave_a_buffer_in_the_arena():
    hollow = ArenaBuffer(name="hollow", start=0, end=4, size=5, gaps=((0, 4),))
    beside = ArenaBuffer(name="beside", start=0, end=4, size=3)
    found = lower_bound(Problem(buffers=(hollow, beside)))
    assert (found.bytes, found.reason) == (5, "buffer hollow has 5 bytes")


@pytest.mark.parametrize(("rows", "grain"), [
    ([], 1), ([(6, 1), (9, 3)], 3), ([(512, 1), (1024, 1024)], 512), ([(12, 4), (12, 18)], 2), ([(10, 3)], 1),
])  # fmt: skip
def test_the_grain_divides_sizes_and_goes_with_every_alignment(rows, grain):
    buffers = (ArenaBuffer(name=str(i), start=0, end=1, size=size, alignment=a) for i, (size, a) in enumerate(rows))
    assert grain_of(Problem(buffers=tuple(buffers))) == grain
