"""Offloading: the queue that solvers reckon with against a clock, and joint answers."""

import itertools
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from memplan.plan.checkpoint.blocks.problem.copies import backlogs, computing_seconds, fetches
from memplan.plan.checkpoint.blocks.problem.memory import peak, position_bytes
from memplan.plan.checkpoint.blocks.problem.records import BlockChoice, FeasibleChoice, InfeasibleChoice, OptimalChoice
from memplan.plan.checkpoint.blocks.problem.seconds import extra_seconds
from memplan.plan.checkpoint.blocks.solve import greedy, ilp, rotor, sqrt
from memplan.runtime.checkpoint.records import Action
from tests.plan.checkpoint.blocks.solve.problems import Shape, block_problems, chain, plain_option
from tests.plan.checkpoint.blocks.support.check import check
from tests.plan.checkpoint.blocks.support.transfers import simulate

LIMIT = 20.0
WITH_COPIES = Shape(blocks=(1, 4), options=3, offload=True)


def offloading(count: int, bandwidth: float):
    """Blocks that keep ten bytes or copy them out; a forward takes one second, so does a backward."""
    problem = chain(count)
    blocks = tuple(
        replace(
            block,
            options=(
                *block.options,
                replace(
                    plain_option(Action.OFFLOAD, 0, 13, 13, 0.0, block.options[0].holds),
                    offloaded_bytes=10,
                ),
            ),
        )
        for block in problem.blocks
    )
    return replace(problem, blocks=blocks, host_link_bandwidth=bandwidth)


@given(st.data())
def test_the_queue_holds_what_the_clock_says(data):
    problem = data.draw(block_problems(replace(WITH_COPIES, interleaved=data.draw(st.booleans()))))
    options = tuple(data.draw(st.integers(0, len(block.options) - 1)) for block in problem.blocks)
    stalls = tuple(data.draw(st.sampled_from([0.0, 0.0, 1.0, 3.5])) for _ in problem.positions)
    choice = BlockChoice(options=options, stalls=stalls, prefetch=data.draw(st.booleans()))
    queue, clock = backlogs(problem, choice), simulate(problem, choice)
    back = fetches(problem, choice, computing_seconds(problem, choice))
    assert back.ahead == clock.ahead
    assert back.waits == pytest.approx(clock.waits, abs=1e-9)
    for at in range(len(problem.positions)):
        assert abs(queue.outward[at] - clock.under_way(at)) <= 1
    assert bool(clock.late()) == (queue.late_bytes > 0)


def test_a_copy_is_on_the_device_while_the_next_blocks_run():
    # Four bytes a second: ten bytes are under way during two more forwards; they come back in their own backward.
    problem, choice = offloading(4, bandwidth=4.0), BlockChoice(options=(2, 0, 0, 0))
    assert backlogs(problem, choice).outward == (0, 10, 6, 2, 0, 0, 0, 0)
    alone = position_bytes(problem, replace(choice, options=(2, 0, 0, 0)))
    assert alone[1] == 100 + 1 + 13 + 10
    assert alone[3] == 100 + 20 + 3 + 13 + 2


def test_an_unfinished_copy_is_named_and_a_stall_mends_it():
    problem = offloading(3, bandwidth=2.0)
    assert {v.reason for v in check(problem, BlockChoice(options=(2, 0, 0)), 10**6)} == {"copy_late"}
    # Ten bytes at two a second within two forwards: three seconds are missing; and five for their way back.
    stalls = (0.0, 0.0, 3.0, 0.0, 0.0, 0.0)
    assert check(problem, BlockChoice(options=(2, 0, 0), stalls=stalls), 10**6, seconds=8.0) == ()
    short = (0.0, 0.0, 2.9, 0.0, 0.0, 0.0)
    assert {v.reason for v in check(problem, BlockChoice(options=(2, 0, 0), stalls=short), 10**6)} == {"copy_late"}


def test_the_host_can_be_full_or_away():
    problem = replace(offloading(3, bandwidth=100.0), host_bytes=9)
    assert [v.reason for v in check(problem, BlockChoice(options=(2, 0, 0)), 10**6)] == ["host_full"]
    away = replace(problem, host_link_bandwidth=0.0)
    assert [v.reason for v in check(away, BlockChoice(options=(2, 0, 0)), 10**6)] == ["no_link"]


def test_a_fast_link_replaces_recomputation():
    # Three blocks must go. Their copies take half as long as a backward: all but the first are hidden behind one.
    slow, fast = offloading(8, bandwidth=0.001), offloading(8, bandwidth=20.0)
    budget = peak(slow, BlockChoice(options=(0,) * 8))[0] - 25
    assert ilp.solve(slow, budget, time_limit=LIMIT).seconds == pytest.approx(3.0)
    result = ilp.solve(fast, budget, time_limit=LIMIT)
    assert isinstance(result, OptimalChoice)
    assert result.seconds == pytest.approx(0.5)
    assert result.choice.prefetch
    assert check(fast, result.choice, budget, seconds=0.5) == ()
    assert check(fast, replace(result.choice, prefetch=False), budget, seconds=1.5) == ()
    capped = replace(fast, host_bytes=10)
    result = ilp.solve(capped, budget, time_limit=LIMIT)
    assert check(capped, result.choice, budget, seconds=result.seconds) == ()
    assert result.seconds == pytest.approx(2.5)


def test_what_is_fetched_ahead_takes_memory_and_saves_time():
    # Ten bytes at four a second take two and a half seconds, of which blocks 2 and 3 hide two.
    problem = offloading(4, bandwidth=4.0)
    ahead = BlockChoice(options=(0, 2, 0, 2), prefetch=True)
    plain = replace(ahead, prefetch=False)
    more = [a - b for a, b in zip(position_bytes(problem, ahead), position_bytes(problem, plain), strict=True)]
    assert more == [0, 0, 0, 0, 10, 10, 0, 0]
    assert extra_seconds(problem, plain) == 5.0
    assert extra_seconds(problem, ahead) == 3.0


def test_a_run_again_hides_a_copy_too():
    problem = offloading(4, bandwidth=4.0)
    choice = BlockChoice(options=(0, 2, 1, 2), prefetch=True)
    assert extra_seconds(problem, choice) == 2.5 + 1.0


@settings(max_examples=30, deadline=None)
@given(st.data())
def test_joint_answers_hold_and_no_choice_without_stalls_is_cheaper(data):
    problem = data.draw(block_problems(WITH_COPIES))
    most = peak(problem, BlockChoice(options=(0,) * len(problem.blocks)))[0]
    budget = data.draw(st.integers(most // 2, most))
    result = ilp.solve(problem, budget, time_limit=LIMIT)
    menus = [range(len(block.options)) for block in problem.blocks]
    every = [BlockChoice(options=o, prefetch=p) for o in itertools.product(*menus) for p in (False, True)]
    # Two bytes are given away for rounding.
    valid = [extra_seconds(problem, choice) for choice in every if not check(problem, choice, budget - 2)]
    if isinstance(result, InfeasibleChoice):
        assert not valid
        assert not check(problem, result.choice, result.least_bytes)
        again = ilp.solve(problem, result.least_bytes, time_limit=LIMIT)
        assert isinstance(again, OptimalChoice | FeasibleChoice)
    else:
        assert isinstance(result, OptimalChoice | FeasibleChoice)
        assert check(problem, result.choice, budget, seconds=result.seconds) == ()
        if isinstance(result, OptimalChoice) and valid:
            assert result.seconds <= min(valid) * (1 + 1e-4) + 1e-6


@pytest.mark.parametrize("solver", [greedy, sqrt, rotor])
def test_the_other_methods_leave_offloading_aside(solver):
    problem = offloading(6, bandwidth=100.0)
    result = solver.solve(problem, peak(problem, BlockChoice(options=(0,) * 6))[0] - 15, time_limit=LIMIT)
    assert isinstance(result, FeasibleChoice)
    assert 2 not in result.choice.options
