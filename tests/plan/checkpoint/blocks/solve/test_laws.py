"""Laws that hold for every solver and between them."""

from dataclasses import replace
from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from memplan.errors import UsageError
from memplan.plan.checkpoint.blocks.problem.memory import peak
from memplan.plan.checkpoint.blocks.problem.records import (
    BlockChoice,
    ChoiceTimedOut,
    FeasibleChoice,
    InfeasibleChoice,
    OptimalChoice,
)
from memplan.plan.checkpoint.blocks.solve import dp, greedy, ilp, rotor, sqrt
from memplan.plan.checkpoint.blocks.solve.curve import curve
from tests.plan.checkpoint.blocks.solve.problems import Shape, block_problems, chain
from tests.plan.checkpoint.blocks.support.check import check

LIMIT = 20.0
FEW = settings(max_examples=25, deadline=None)


def keep_peak(problem) -> int:
    return peak(problem, BlockChoice(options=(0,) * len(problem.blocks)))[0]


def answered(solve, problem, budget):
    """The result, having held what every result promises."""
    result = solve(problem, budget, time_limit=LIMIT)
    if isinstance(result, OptimalChoice | FeasibleChoice):
        assert check(problem, result.choice, budget, seconds=result.seconds) == ()
    else:
        assert isinstance(result, InfeasibleChoice)
        assert peak(problem, result.choice) == (result.least_bytes, result.position)
        assert result.least_bytes > budget
    return result


def seconds_of(result) -> float:
    return result.seconds if isinstance(result, OptimalChoice | FeasibleChoice) else float("inf")


@pytest.mark.parametrize("solver", [ilp, greedy, sqrt, rotor, dp])
@FEW
@given(st.data())
def test_every_answer_holds_and_the_least_budget_is_reachable(solver, data):
    problem = data.draw(block_problems(Shape(blocks=(1, 8), skips=solver in (ilp, greedy), batches=1)))
    result = answered(solver.solve, problem, data.draw(st.integers(0, keep_peak(problem))))
    if isinstance(result, InfeasibleChoice):
        again = answered(solver.solve, problem, result.least_bytes)
        assert isinstance(again, OptimalChoice | FeasibleChoice)
        if result.is_proved:
            assert isinstance(answered(solver.solve, problem, result.least_bytes - 1), InfeasibleChoice)


@pytest.mark.parametrize("solver", [ilp, rotor, sqrt])
@FEW
@given(st.data())
def test_more_budget_never_costs_more(solver, data):
    problem = data.draw(block_problems(Shape(blocks=(2, 8), skips=False)))
    budgets = sorted(data.draw(st.lists(st.integers(0, keep_peak(problem)), min_size=2, max_size=4)))
    costs = [seconds_of(answered(solver.solve, problem, budget)) for budget in budgets]
    assert all(more <= less * (1 + 1e-5) for less, more in pairwise(costs))


@pytest.mark.parametrize("solver", [greedy, sqrt])
@FEW
@given(st.data())
def test_flat_baselines_are_never_better_than_the_integer_program(solver, data):
    problem = replace(data.draw(block_problems(Shape(blocks=(2, 8)))), chain=False)
    budget = data.draw(st.integers(0, keep_peak(problem)))
    assert (
        seconds_of(answered(ilp.solve, problem, budget)) <= seconds_of(answered(solver.solve, problem, budget)) + 1e-3
    )


@FEW
@given(st.data())
def test_rotor_is_never_worse_than_the_best_flat_choice(data):
    problem = data.draw(block_problems(Shape(blocks=(2, 8), skips=False, batches=1)))
    budget = data.draw(st.integers(0, keep_peak(problem)))
    flat = answered(ilp.solve, problem, budget)
    assert seconds_of(answered(rotor.solve, problem, budget)) <= seconds_of(flat) + 1e-3


@FEW
@given(st.data())
def test_sqrt_is_never_better_than_rotor(data):
    problem = data.draw(block_problems(Shape(blocks=(2, 9), skips=False, batches=1)))
    budget = data.draw(st.integers(0, keep_peak(problem)))
    assert (
        seconds_of(answered(rotor.solve, problem, budget)) <= seconds_of(answered(sqrt.solve, problem, budget)) + 1e-3
    )


@FEW
@given(st.data())
def test_both_exact_methods_agree_where_both_apply(data):
    problem = data.draw(block_problems(Shape(blocks=(2, 8))))
    budget = data.draw(st.integers(0, keep_peak(problem)))
    try:
        one = answered(dp.solve, problem, budget)
    except UsageError:
        return
    other = answered(ilp.solve, problem, budget)
    assert type(one) is type(other)
    if isinstance(one, InfeasibleChoice):
        assert one.least_bytes == other.least_bytes
    else:
        assert one.seconds == pytest.approx(other.seconds, rel=1e-5)


def test_no_time_is_no_answer_but_no_lie():
    problem = chain(40)
    budget = keep_peak(problem) // 2
    for solver in (dp, rotor):
        assert solver.solve(problem, budget, time_limit=0.0) == ChoiceTimedOut(best=None)
    result = ilp.solve(problem, budget, time_limit=0.0)
    assert isinstance(result, ChoiceTimedOut | FeasibleChoice | OptimalChoice)


def test_deep_budgets_need_nesting():
    # Every input costs a byte: a flat choice cannot go below thirty of them, nested segments can.
    problem = chain(30)
    flat = ilp.solve(problem, 0, time_limit=LIMIT)
    nested = rotor.solve(problem, 0, time_limit=LIMIT)
    assert nested.least_bytes < flat.least_bytes
    assert check(problem, nested.choice, nested.least_bytes) == ()


@pytest.mark.parametrize("solver", [dp, rotor])
def test_methods_say_where_they_do_not_apply(solver):
    problem = chain(3)
    # A second run of every block, the two being interleaved.
    blocks = tuple(replace(block, spans=(*block.spans, block.spans[0])) for block in problem.blocks)
    with pytest.raises(UsageError, match=r"does not apply|needs a chain"):
        solver.solve(replace(problem, blocks=blocks), 0, time_limit=LIMIT)


def test_equal_blocks_are_checkpointed_earliest_first():
    problem = chain(10)
    result = ilp.solve(problem, keep_peak(problem) - 35, time_limit=LIMIT)
    assert result == OptimalChoice(choice=BlockChoice(options=(1, 1, 1, 1, 0, 0, 0, 0, 0, 0)), seconds=4.0)


@FEW
@given(st.data())
def test_the_curve_falls_and_every_point_holds(data):
    problem = data.draw(block_problems(Shape(blocks=(1, 6))))
    points = curve(problem, ilp.solve, time_limit=LIMIT, points=5)
    for point in points:
        assert check(problem, point.choice, point.peak_bytes, seconds=point.seconds) == ()
    assert points[-1].seconds == 0.0
    peaks = [point.peak_bytes for point in points]
    costs = [point.seconds for point in points]
    assert peaks == sorted(set(peaks))
    assert costs == sorted(set(costs), reverse=True)
    least = ilp.solve(problem, 0, time_limit=LIMIT)
    assert points[0].peak_bytes == least.least_bytes


def test_kinds_do_not_matter_for_what_it_costs():
    # The order among blocks of one kind is a help for the search only.
    problem = chain(6)
    apart = replace(problem, blocks=tuple(replace(b, kind=k) for k, b in enumerate(problem.blocks)))
    for budget in range(keep_peak(problem) - 40, keep_peak(problem), 7):
        assert seconds_of(ilp.solve(problem, budget, time_limit=LIMIT)) == pytest.approx(
            seconds_of(ilp.solve(apart, budget, time_limit=LIMIT))
        )
