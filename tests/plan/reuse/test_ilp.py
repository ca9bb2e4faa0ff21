"""The integer program is an oracle: it finds what trying every order finds."""

from dataclasses import replace

from hypothesis import given, settings

from memplan.plan.reuse import ilp
from memplan.plan.reuse.check import problems_of
from memplan.plan.reuse.records import Infeasible, Optimal
from tests.plan.reuse.problems import lowest_height, problems


@settings(max_examples=60)
@given(problem=problems(most=6, size=7))
def test_the_program_finds_the_lowest_placement(problem):
    result = ilp.solve(problem, time_limit=60)
    assert isinstance(result, Optimal)
    assert problems_of(problem, result.placement) == ()
    assert result.placement.height == lowest_height(problem)


@settings(max_examples=20)
@given(problem=problems(most=5, size=7))
def test_one_byte_less_is_infeasible(problem):
    lowest = lowest_height(problem)
    if lowest:
        result = ilp.solve(replace(problem, capacity=lowest - 1), time_limit=60)
        assert isinstance(result, Infeasible)
        assert result.bound == lowest
