"""Memory of a choice: the formula for flat ones, two independent readings for nested ones, and hand-made cases."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from memplan.plan.checkpoint.blocks.problem.memory import peak, position_bytes
from memplan.plan.checkpoint.blocks.problem.records import BlockChoice
from memplan.plan.checkpoint.blocks.problem.seconds import block_seconds, extra_seconds
from memplan.runtime.checkpoint.records import Action
from tests.plan.checkpoint.blocks.solve.problems import (
    Shape,
    block_problems,
    chain,
    formula_bytes,
    nested_choices,
    with_states,
)
from tests.plan.checkpoint.blocks.support.check import check
from tests.plan.checkpoint.blocks.support.walk import Walk


@given(st.data())
def test_flat_choices_take_what_the_formula_says(data):
    problem = data.draw(block_problems(Shape(interleaved=data.draw(st.booleans()))))
    options = tuple(data.draw(st.integers(0, len(block.options) - 1)) for block in problem.blocks)
    assert list(position_bytes(problem, BlockChoice(options=options))) == formula_bytes(problem, options)
    assert Walk(problem, BlockChoice(options=options)).run() == formula_bytes(problem, options)


@given(st.data())
def test_nested_choices_take_what_a_walk_through_the_step_finds(data):
    problem = data.draw(block_problems(Shape(blocks=(2, 7), skips=data.draw(st.booleans()))))
    problem = with_states(data, problem)
    choice = data.draw(nested_choices(problem))
    assert list(position_bytes(problem, choice)) == Walk(problem, choice).run()
    most, at = peak(problem, choice)
    seconds = extra_seconds(problem, choice)
    assert check(problem, choice, most, seconds=seconds) == ()
    assert {v.reason for v in check(problem, choice, most - 1, seconds=seconds)} == {"over_budget"}
    assert problem.positions[at].name in check(problem, choice, most - 1)[0].text
    assert {v.reason for v in check(problem, choice, most, seconds=seconds + 1)} == {"seconds_wrong"}


def test_keeping_everything():
    # Forward of block 2: two blocks' tens, two ones passed on, its own peak.
    assert position_bytes(chain(3), BlockChoice(options=(0, 0, 0))) == (113, 124, 135, 135, 124, 113)


def test_a_segment_keeps_its_input_and_runs_again_before_its_last_backward():
    # Forward drops (4 each). Backward of 2: 0 and 1 run again keeping 10 each, 2 runs again at 13 + 2 passed on.
    choice = BlockChoice(options=(0, 0, 0), segments=((0, 3),))
    assert position_bytes(chain(3), choice) == (104, 105, 105, 135, 124, 113)
    assert extra_seconds(chain(3), choice) == 3.0


def test_a_checkpointed_last_block_does_not_run_twice():
    choice = BlockChoice(options=(0, 1), segments=((0, 2),))
    # Only block 0 runs again for the segment; block 1 for itself.
    assert extra_seconds(chain(2), choice) == 2.0
    assert position_bytes(chain(2), choice) == (104, 105, 100 + 10 + 1 + 14, 113)


def test_only_the_last_block_of_a_run_again_stops_early():
    # One that stops early takes a second; a whole forward, 1.5.
    problem = chain(4)
    whole = tuple(replace(position, seconds=1.5) for position in problem.positions)
    problem = replace(problem, positions=whole)
    # 0, 1 and 2 run in full for the outer segment; then 0 does for the inner one, in which 1 is the last.
    choice = BlockChoice(options=(0, 0, 0, 0), segments=((0, 4), (0, 2)))
    assert block_seconds(problem, choice) == (3.0, 2.5, 1.5, 1.0)
    assert extra_seconds(problem, choice) == 8.0
    # A checkpointed block that comes before the last one runs in full for the segment, and once more for itself.
    assert block_seconds(problem, BlockChoice(options=(0, 1, 0, 0), segments=((0, 3),))) == (1.5, 2.5, 1.0, 0.0)


def test_a_segment_inside_runs_three_times():
    choice = BlockChoice(options=(0, 0, 0, 0), segments=((0, 4), (0, 2)))
    # Forward, again for the outer segment, again for the inner one: 2 extra for 0 and 1, 1 extra for 2 and 3.
    assert extra_seconds(chain(4), choice) == 6.0
    # Backward of 3: the inner segment drops all; 2 and 3 keep 10 each and pass on 1 each, 1 being held by 2.
    assert position_bytes(chain(4), choice)[4] == 100 + 10 + 2 + 13
    # Backward of 1: the inner segment keeps again: block 0's ten and its result, then block 1's thirteen.
    assert position_bytes(chain(4), choice)[6] == 100 + 10 + 1 + 13


def test_a_segment_inside_has_its_input_while_it_first_runs():
    # Forward of 2 and 3 drops all but the outer segment's input (the first block has none here) and the inner one's.
    choice = BlockChoice(options=(0, 0, 0, 0), segments=((0, 4), (1, 4)))
    assert position_bytes(chain(4), choice)[:4] == (104, 105, 106, 106)


@pytest.mark.parametrize(
    ("choice", "reason"),
    [
        (BlockChoice(options=(0, 0)), "options_missing"),
        (BlockChoice(options=(0, 0, 2)), "unknown_option"),
        (BlockChoice(options=(0, 0, -1)), "unknown_option"),
        (BlockChoice(options=(0, 0, 0), segments=((0, 1),)), "segment_range"),
        (BlockChoice(options=(0, 0, 0), segments=((1, 4),)), "segment_range"),
        (BlockChoice(options=(0, 0, 0), segments=((0, 2), (1, 3))), "segments_cross"),
        (BlockChoice(options=(0, 0, 0), segments=((0, 2), (0, 2))), "segments_cross"),
        (BlockChoice(options=(0, 0, 0), segments=((0, 2), (0, 3))), "segment_order"),
        (BlockChoice(options=(0, 0, 0), stalls=(1.0,)), "copy_late"),
    ],
)
def test_a_wrong_choice_is_named(choice, reason):
    assert [v.reason for v in check(chain(3), choice, 10**6)] == [reason]


def test_segments_need_a_chain_and_actions_that_nest():
    choice = BlockChoice(options=(0, 0, 0), segments=((0, 2),))
    assert [v.reason for v in check(replace(chain(3), chain=False), choice, 10**6)] == ["not_a_chain"]
    problem = chain(3)
    keep, again = problem.blocks[0].options
    selective = replace(problem.blocks[0], options=(replace(keep, action=Action.SELECTIVE), again))
    changed = replace(problem, blocks=(selective, *problem.blocks[1:]))
    assert [v.reason for v in check(changed, choice, 10**6)] == ["segment_action"]
    poor = replace(problem.blocks[0], options=(keep,))
    changed = replace(problem, blocks=(poor, *problem.blocks[1:]))
    assert [v.reason for v in check(changed, choice, 10**6)] == ["segment_action"]
