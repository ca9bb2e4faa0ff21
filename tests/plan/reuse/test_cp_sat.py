"""CP-SAT, where it is installed; and what is said where it is not."""

import sys
from dataclasses import replace
from importlib import import_module
from importlib.util import find_spec

import pytest

from memplan.errors import UsageError
from memplan.plan.reuse import cp_sat
from memplan.plan.reuse.check import problems_of
from memplan.plan.reuse.records import ArenaBuffer, InfeasiblePlacement, OptimalPlacement, Problem
from tests.plan.reuse.problems import lowest_height, problems
from tests.support.laws import swept

needs_ortools = pytest.mark.skipif(find_spec("ortools") is None, reason="needs ortools")


def test_cp_sat_that_is_not_installed_is_told(monkeypatch):
    monkeypatch.setitem(sys.modules, "ortools", None)
    with pytest.raises(UsageError, match="not installed"):
        cp_sat.solve(Problem(buffers=(ArenaBuffer(name="a", start=0, end=1, size=1),)), time_limit=1)


@needs_ortools
@swept(quick=8, full=30, problem=problems(most=6, size=7))
def test_cp_sat_finds_the_lowest_placement(problem):
    result = cp_sat.solve(problem, time_limit=60)
    assert isinstance(result, OptimalPlacement)
    assert problems_of(problem, result.placement) == ()
    assert result.placement.height == lowest_height(problem)


@needs_ortools
@swept(quick=8, full=20, problem=problems(most=5, size=7))
def test_cp_sat_excludes_one_byte_less(problem):
    lowest = lowest_height(problem)
    if lowest:
        assert isinstance(cp_sat.solve(replace(problem, capacity=lowest - 1), time_limit=60), InfeasiblePlacement)


@needs_ortools
def test_highs_can_be_loaded_beside_it():
    """Both bring a ``libhighs.so.1``: in one process, whoever comes second finds the other's."""
    # No ordering places these at the bound.
    shape = ((3, 6, 5), (2, 7, 3), (2, 3, 1), (5, 6, 5), (2, 5, 4), (3, 6, 2), (3, 4, 3))
    buffers = tuple(
        ArenaBuffer(name=str(i), start=start, end=end, size=size) for i, (start, end, size) in enumerate(shape)
    )
    import_module("highspy")
    result = cp_sat.solve(Problem(buffers=buffers), time_limit=60)
    assert isinstance(result, OptimalPlacement)
    assert (result.method, result.placement.height) == ("CP-SAT", 17)
