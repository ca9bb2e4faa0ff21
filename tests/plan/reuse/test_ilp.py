"""The integer program is an oracle: it finds what trying every order finds."""

from dataclasses import replace

from hypothesis import given, settings

from memplan.plan.checkpoint.schedule.highs import BinaryProgram, solve_binary
from memplan.plan.reuse import ilp
from memplan.plan.reuse.check import problems_of
from memplan.plan.reuse.records import ArenaBuffer, InfeasiblePlacement, OptimalPlacement, Problem
from tests.plan.reuse.problems import lowest_height, problems
from tests.support.laws import swept


@swept(quick=15, full=60, problem=problems(most=6, size=7))
def test_the_program_finds_the_lowest_placement(problem):
    result = ilp.solve(problem, time_limit=60)
    assert isinstance(result, OptimalPlacement)
    assert problems_of(problem, result.placement) == ()
    assert result.placement.height == lowest_height(problem)


@settings(max_examples=20)
@given(problem=problems(most=5, size=7))
def test_one_byte_less_is_infeasible(problem):
    lowest = lowest_height(problem)
    if lowest:
        result = ilp.solve(replace(problem, capacity=lowest - 1), time_limit=60)
        assert isinstance(result, InfeasiblePlacement)
        assert result.bound == lowest


def test_another_number_of_threads_before_does_no_harm():
    """HiGHS has one pool of threads for the process, made by whoever came first."""
    program = BinaryProgram(
        costs=[1.0, 2.0], starts=[0, 2], indices=[0, 1], values=[1.0, 1.0], lower=[1.0], upper=[2.0]
    )
    for threads in (1, 2, 3):
        assert solve_binary(program, time_limit=10.0, threads=threads).proven
        aligned = Problem(buffers=(_buffer("a", alignment=1), _buffer("b", alignment=2)))
        result = ilp.solve(aligned, time_limit=60)
        assert isinstance(result, OptimalPlacement)
        assert result.placement.height == 2


def _buffer(name: str, *, alignment: int) -> ArenaBuffer:
    return ArenaBuffer(name=name, start=0, end=1, size=1, alignment=alignment)
