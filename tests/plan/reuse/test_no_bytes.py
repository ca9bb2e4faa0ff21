"""Buffers of no bytes never count, wherever they must lie."""

from importlib.util import find_spec

import pytest

from memplan.plan.reuse import cp_sat, ilp, portfolio, search
from memplan.plan.reuse.records import ArenaBuffer, OptimalPlacement, Problem

ABOVE = Problem(
    buffers=(
        ArenaBuffer(name="a", start=0, end=1, size=1),
        ArenaBuffer(name="b", start=0, end=1, size=1, alignment=2),
        ArenaBuffer(name="nothing", start=0, end=1, size=0, offset=4),
    )
)
"""Two bytes are enough, and greedy takes three."""


@pytest.mark.parametrize("solver", [cp_sat, ilp, portfolio, search])
def test_one_that_must_lie_above_all_others_raises_no_height(solver):
    if solver is cp_sat and find_spec("ortools") is None:
        pytest.skip("needs ortools")
    result = solver.solve(ABOVE, time_limit=60)
    assert isinstance(result, OptimalPlacement)
    assert result.placement.height == 2
