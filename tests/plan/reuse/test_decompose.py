"""Parts that never meet are placed apart, and nothing is lost between them."""

from itertools import pairwise

from hypothesis import given

from memplan.plan.reuse import greedy
from memplan.plan.reuse.check import problems_of
from memplan.plan.reuse.decompose import joined, part_of, sections_of
from memplan.plan.reuse.records import ArenaBuffer, Problem
from memplan.plan.reuse.result import best_of
from tests.plan.reuse.problems import load, moments, problems
from tests.support.laws import swept


@swept(quick=75, full=300, problem=problems())
def test_parts_hold_every_buffer_once_and_never_meet(problem):
    sections = sections_of(problem)
    assert sorted(i for section in sections for i in section) == [
        i for i, buffer in enumerate(problem.buffers) if buffer.size and moments(buffer)
    ]
    hulls = [set().union(*(range(min(moments(b)), max(moments(b)) + 1) for b in part_of(problem, section).buffers))
             for section in sections]  # fmt: skip
    # Each ends before the next begins, and none falls apart further.
    assert all(max(one) < min(other) for one, other in pairwise(hulls))
    assert all(hull == set(range(min(hull), max(hull) + 1)) for hull in hulls)
    assert max((load(part_of(problem, section)) for section in sections), default=0) == load(problem)


@given(problem=problems())
def test_what_is_joined_is_right(problem):
    sections = sections_of(problem)
    parts = [best_of(greedy.solve(part_of(problem, section), time_limit=60)) for section in sections]
    assert problems_of(problem, joined(problem, sections, parts)) == ()


def test_a_gap_holds_together_what_it_separates():
    across = ArenaBuffer(name="across", start=0, end=9, size=1, gaps=((1, 8),))
    within = ArenaBuffer(name="within", start=3, end=5, size=1)
    after = ArenaBuffer(name="after", start=9, end=11, size=1)
    assert sections_of(Problem(buffers=(after, within, across))) == ((2, 1), (0,))
