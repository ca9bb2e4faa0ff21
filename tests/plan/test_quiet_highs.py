"""HiGHS says nothing of itself, by whichever door it is reached."""

import highspy
import pulp
import pytest

from memplan.plan.quiet_highs import quiet_highs


def _small() -> pulp.LpProblem:
    problem = pulp.LpProblem("small", pulp.LpMinimize)
    chosen = problem.add_variable("chosen", cat="Binary")
    problem += chosen
    problem += chosen >= 0.5
    return problem


def test_what_pulp_solves_is_solved_in_silence(capfd: pytest.CaptureFixture[str]) -> None:
    problem = _small()
    with quiet_highs():
        problem.solve(pulp.HiGHS(msg=False))
    assert problem.sol_status == pulp.LpSolutionOptimal
    assert pulp.value(problem.objective) == 1
    assert capfd.readouterr() == ("", "")


def test_solvers_of_others_are_their_own_again_afterwards() -> None:
    before = highspy.Highs
    with quiet_highs():
        assert highspy.Highs is not before
    assert highspy.Highs is before
