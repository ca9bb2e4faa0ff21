"""Every method by its name: right placements, true bounds, and one answer of all of them."""

import pytest
from hypothesis import given, settings

from memplan.cli import reuse_plan
from memplan.errors import UsageError
from memplan.plan.reuse import ilp
from memplan.plan.reuse.methods import METHODS, NAMES, place
from memplan.plan.reuse.records import ArenaBuffer, Problem
from memplan.plan.reuse.result import best_of, bound_of
from tests.plan.reuse.problems import lowest_height, problems, right

QUICK = {name for name in METHODS if name != "cp-sat"}  # That one needs a process each time.


def test_the_command_names_the_same_methods():
    assert reuse_plan.METHODS == NAMES


@pytest.mark.parametrize("method", sorted(QUICK))
@settings(max_examples=10)
@given(problem=problems(most=5, fixed=False))
def test_a_placement_is_right_and_no_bound_is_above_the_lowest(method, problem):
    result, rows = place(problem, method=method, time_limit=0.05)
    assert [row.name for row in rows] == [method]
    assert right(problem, best_of(result).offsets)
    assert bound_of(result) <= lowest_height(problem) <= best_of(result).height


def test_all_of_them_are_at_least_as_good_as_each():
    sizes = ((0, 10, 4), (1, 12, 4), (10, 20, 4), (9, 14, 4))
    problem = Problem(
        buffers=tuple(ArenaBuffer(name=str(i), start=a, end=b, size=s) for i, (a, b, s) in enumerate(sizes))
    )
    result, rows = place(problem, method="all", time_limit=0.2)
    assert [row.name for row in rows] == list(METHODS)
    assert best_of(result).height == min(row.height_bytes for row in rows if row.result) == lowest_height(problem)
    assert bound_of(result) == max(row.bound_bytes for row in rows if row.result)


def test_a_method_that_cannot_take_a_problem_says_so(monkeypatch):
    # Three that meet, and that no ordering places at the load.
    monkeypatch.setattr(ilp, "MOST_PAIRS", 1)
    monkeypatch.delitem(METHODS, "cp-sat")  # A process each time.
    spans = ((0, 2, 3, 1), (1, 3, 3, 4), (0, 3, 2, 2))
    buffers = tuple(
        ArenaBuffer(name=str(i), start=a, end=b, size=s, alignment=k) for i, (a, b, s, k) in enumerate(spans)
    )
    with pytest.raises(UsageError, match="pairs of buffers meet"):
        place(Problem(buffers=buffers), method="ilp", time_limit=1)
    rows = place(Problem(buffers=buffers), method="all", time_limit=1)[1]
    assert {row.name for row in rows if row.refusal} == {"ilp"}
