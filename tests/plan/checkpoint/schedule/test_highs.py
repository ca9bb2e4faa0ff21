"""The door to HiGHS."""

import pytest

from memplan.plan.checkpoint.schedule.highs import BinaryProgram, solve_binary


def test_the_solver_says_nothing(capfd: pytest.CaptureFixture[str]) -> None:
    program = BinaryProgram()
    first, second = program.variable(3.0), program.variable(2.0)
    program.row([first, second], [1.0, 1.0], 1.0, 2.0)
    solution = solve_binary(program, time_limit=10.0, threads=1)
    assert solution.chosen is not None
    assert [*solution.chosen] == [False, True]
    assert solution.proven
    assert solution.bound == pytest.approx(2.0)
    assert capfd.readouterr() == ("", "")
