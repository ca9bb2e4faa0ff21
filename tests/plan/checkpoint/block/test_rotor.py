"""Rotor against enumeration of every nested choice, and against flat ones."""

import itertools

import pytest
from hypothesis import Phase, assume, given, settings
from hypothesis import strategies as st

from memplan.plan.checkpoint.block import rotor
from memplan.plan.checkpoint.block.check import check
from memplan.plan.checkpoint.block.memory import extra_seconds, peak
from memplan.plan.checkpoint.block.records import Choice, Feasible, Infeasible
from tests.plan.checkpoint.block.problems import Shape, block_problems

LIMIT = 20.0
CHAINS = Shape(blocks=(1, 4), skips=False, options=3, batches=1)


def laminar(first: int, end: int, largest: int):
    """Every way to nest segments of two or more blocks within a stretch, none longer than ``largest``."""
    if end <= first:
        yield ()
        return
    yield from laminar(first + 1, end, end)
    for stop in range(first + 2, min(end, first + largest) + 1):
        for inside in laminar(first, stop, stop - first - 1):
            for rest in laminar(stop, end, end):
                yield ((first, stop), *inside, *rest)


def nested_choices(problem):
    for segments in set(laminar(0, len(problem.blocks), len(problem.blocks))):
        covered = {k for first, end in segments for k in range(first, end)}
        menus = [range(2 if k in covered else len(block.options)) for k, block in enumerate(problem.blocks)]
        for options in itertools.product(*menus):
            yield Choice(options=options, segments=segments)


@settings(max_examples=30, deadline=None, phases=[Phase.explicit, Phase.reuse, Phase.generate])
@given(st.data())
def test_rotor_finds_the_cheapest_of_all_nested_choices(data):
    problem = data.draw(block_problems(CHAINS))
    every = [(extra_seconds(problem, c), peak(problem, c)[0]) for c in nested_choices(problem)]
    least = min(most for _, most in every)
    budget = data.draw(st.integers(least, max(most for _, most in every)))
    result = rotor.solve(problem, budget, time_limit=LIMIT)
    assert isinstance(result, Feasible)
    assert check(problem, result.choice, budget, seconds=result.seconds) == ()
    assert result.seconds == pytest.approx(min(seconds for seconds, most in every if most <= budget))
    below = rotor.solve(problem, least - 1, time_limit=LIMIT)
    assert isinstance(below, Infeasible)
    assert below.least_bytes == least


@settings(max_examples=40, deadline=None)
@given(st.data())
def test_several_micro_batches_are_planned_within_the_budget(data):
    problem = data.draw(block_problems(Shape(blocks=(2, 6), skips=data.draw(st.booleans()), batches=3)))
    assume(problem.chain)
    flat = [0] * len(problem.blocks)
    budget = data.draw(
        st.integers(peak(problem, Choice(options=tuple(flat)))[0] // 3, peak(problem, Choice(options=tuple(flat)))[0])
    )
    result = rotor.solve(problem, budget, time_limit=LIMIT)
    if isinstance(result, Feasible):
        assert check(problem, result.choice, budget, seconds=result.seconds) == ()
    else:
        assert isinstance(result, Infeasible)
        assert peak(problem, result.choice) == (result.least_bytes, result.position)
        assert result.least_bytes > budget
        again = rotor.solve(problem, result.least_bytes, time_limit=LIMIT)
        assert isinstance(again, Feasible)
