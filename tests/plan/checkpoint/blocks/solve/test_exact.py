"""Exact solvers against enumeration of every choice."""

from dataclasses import replace

import pytest
from hypothesis import HealthCheck, assume, given
from hypothesis import strategies as st

from memplan.plan.checkpoint.blocks.problem.records import InfeasibleChoice, OptimalChoice
from memplan.plan.checkpoint.blocks.solve import dp, ilp
from memplan.plan.checkpoint.blocks.solve.ilp import without_implied
from memplan.plan.checkpoint.blocks.solve.ilp_rows import rows_of
from memplan.plan.checkpoint.blocks.solve.symmetry import earliest_first, ordered_pairs
from memplan.units import Bytes
from tests.plan.checkpoint.blocks.solve.problems import Shape, block_problems, flat_choices, formula_bytes
from tests.plan.checkpoint.blocks.support.check import check
from tests.support.laws import swept

LIMIT = 20.0


@swept(quick=40, full=300, suppress=[HealthCheck.filter_too_much], data=st.data())
def test_the_order_among_equal_blocks_loses_nothing(data):
    problem = data.draw(block_problems(Shape(blocks=(2, 3), options=4, skips=False, alike=True)))
    if data.draw(st.booleans()):
        # Equal stretches let the order be asked for more often.
        problem = replace(problem, positions=tuple(replace(p, fixed_bytes=Bytes(5)) for p in problem.positions))
    if data.draw(st.booleans()):
        # A tensor that whoever calls the blocks has until all of them have run: its holder is unlike the others.
        last = problem.blocks[-1].spans[0][0]
        first = replace(problem.interfaces[0], forward_end=max(last, problem.interfaces[0].forward_end))
        problem = replace(problem, interfaces=(first, *problem.interfaces[1:]))
    pairs = list(ordered_pairs(problem, without_implied(problem, rows_of(problem))))
    assume(pairs)
    every = flat_choices(problem)
    ordered = [
        (seconds, most)
        for seconds, most, choice in every
        if all(choice.options[i] in ranks and choice.options[j] in ranks for i, j, ranks in pairs)
        and all(ranks[choice.options[i]] <= ranks[choice.options[j]] for i, j, ranks in pairs)
    ]
    # Whatever fits a budget, something in order fits it at no higher price.
    for seconds, most, _ in every:
        assert any(cost <= seconds and size <= most for cost, size in ordered)


@pytest.mark.slow
@given(st.data())
def test_the_order_of_an_answer_costs_nothing(data):
    problem = data.draw(block_problems(Shape(blocks=(2, 5), options=4)))
    seconds, most, choice = data.draw(st.sampled_from(flat_choices(problem)))
    ordered = earliest_first(problem, choice, most)
    assert check(problem, ordered, most, seconds=seconds) == ()
    assert earliest_first(problem, ordered, most) == ordered


@given(st.data())
def test_implied_rows_never_bind(data):
    problem = data.draw(block_problems(Shape(options=4, interleaved=data.draw(st.booleans()))))
    rows = rows_of(problem)
    needed = without_implied(problem, rows)
    options = tuple(data.draw(st.sampled_from(menu)) for menu in rows.menus)
    kept = {(row.state, row.block, row.is_backward) for row in needed.rows}
    alive = formula_bytes(problem, options)
    written = [
        size
        for at, (size, position) in enumerate(zip(alive, problem.positions, strict=True))
        if (rows.at[at], position.block, position.block is not None and position.phase == "backward") in kept
    ]
    assert max(written) == max(alive)


@pytest.mark.parametrize("solver", [ilp, dp])
@given(st.data())
def test_exact_solvers_find_what_enumeration_finds(solver, data):
    interleaved = solver is ilp and data.draw(st.booleans())
    shape = Shape(options=4, skips=solver is ilp, batches=2 if solver is ilp else 1, interleaved=interleaved)
    problem = data.draw(block_problems(shape))
    every = flat_choices(problem)
    least = min(most for _, most, _ in every)
    budget = data.draw(st.integers(least - 2, max(most for _, most, _ in every)))
    result = solver.solve(problem, budget, time_limit=LIMIT)
    fitting = [seconds for seconds, most, _ in every if most <= budget]
    if fitting:
        assert isinstance(result, OptimalChoice)
        assert result.seconds == pytest.approx(min(fitting), rel=1e-5)
        assert check(problem, result.choice, budget, seconds=result.seconds) == ()
    else:
        assert isinstance(result, InfeasibleChoice)
        assert result.is_proved
        assert result.least_bytes == least
        over = check(problem, result.choice, least - 1)
        assert problem.positions[result.position].name in over[0].text
