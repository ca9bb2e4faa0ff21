"""CP-SAT, where it is installed; and what is said where it is not."""

import sys
from dataclasses import replace

import pytest
from hypothesis import given, settings

from memplan.errors import UsageError
from memplan.plan.reuse import cp_sat
from memplan.plan.reuse.check import problems_of
from memplan.plan.reuse.records import Buffer, Infeasible, Optimal, Problem
from tests.plan.reuse.problems import lowest_height, problems


def test_cp_sat_that_is_not_installed_is_told(monkeypatch):
    monkeypatch.setitem(sys.modules, "ortools.sat.python", None)
    with pytest.raises(UsageError, match="not installed"):
        cp_sat.solve(Problem(buffers=(Buffer(name="a", start=0, end=1, size=1),)), time_limit=1)


@settings(max_examples=60)
@given(problem=problems(most=6, size=7))
def test_cp_sat_finds_the_lowest_placement(problem):
    pytest.importorskip("ortools")
    result = cp_sat.solve(problem, time_limit=60)
    assert isinstance(result, Optimal)
    assert problems_of(problem, result.placement) == ()
    assert result.placement.height == lowest_height(problem)


@settings(max_examples=20)
@given(problem=problems(most=5, size=7))
def test_cp_sat_excludes_one_byte_less(problem):
    pytest.importorskip("ortools")
    lowest = lowest_height(problem)
    if lowest:
        assert isinstance(cp_sat.solve(replace(problem, capacity=lowest - 1), time_limit=60), Infeasible)
