"""Rotor, and what is best of all, against enumeration of every nested choice."""

import itertools
import math
import time
from dataclasses import replace

import pytest
from hypothesis import Phase, assume, given, settings
from hypothesis import strategies as st

from memplan.plan.checkpoint.blocks.problem.memory import peak
from memplan.plan.checkpoint.blocks.problem.records import BlockChoice, FeasibleChoice, InfeasibleChoice, OptimalChoice
from memplan.plan.checkpoint.blocks.problem.seconds import extra_seconds
from memplan.plan.checkpoint.blocks.solve import ilp, rotor
from memplan.plan.checkpoint.blocks.solve.methods import CombinedSolver
from memplan.plan.checkpoint.blocks.solve.nested import NestedSolver
from memplan.plan.checkpoint.blocks.solve.nested_least import LeastPeak, least_of
from tests.plan.checkpoint.blocks.solve.problems import Shape, block_problems, chain, with_states
from tests.plan.checkpoint.blocks.support.check import check

LIMIT = 20.0
CHAINS = Shape(blocks=(1, 4), skips=False, options=3, batches=1, rising=True)


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
    """Every choice, flat ones included."""
    for segments in set(laminar(0, len(problem.blocks), len(problem.blocks))):
        covered = {k for first, end in segments for k in range(first, end)}
        menus = [range(2 if k in covered else len(block.options)) for k, block in enumerate(problem.blocks)]
        for options in itertools.product(*menus):
            yield BlockChoice(options=options, segments=segments)


@settings(max_examples=30, deadline=None, phases=[Phase.explicit, Phase.reuse, Phase.generate])
@given(st.data())
def test_rotor_finds_the_cheapest_of_all_nested_choices(data):
    problem = data.draw(block_problems(CHAINS))
    every = [(extra_seconds(problem, c), peak(problem, c)[0]) for c in nested_choices(problem)]
    least = min(most for _, most in every)
    budget = data.draw(st.integers(least, max(most for _, most in every)))
    result = rotor.solve(problem, budget, time_limit=LIMIT)
    assert isinstance(result, FeasibleChoice)
    assert check(problem, result.choice, budget, seconds=result.seconds) == ()
    assert result.seconds == pytest.approx(min(seconds for seconds, most in every if most <= budget))
    below = rotor.solve(problem, least - 1, time_limit=LIMIT)
    assert isinstance(below, InfeasibleChoice)
    assert below.least_bytes == least


@settings(max_examples=40, deadline=None, phases=[Phase.explicit, Phase.reuse, Phase.generate])
@given(st.data())
def test_the_least_peak_of_all_nested_choices_is_exact(data):
    shape = data.draw(st.one_of(st.just(CHAINS), ANY_CHAIN))
    problem = data.draw(block_problems(shape))
    problem = problem if shape is CHAINS else with_states(data, problem)
    assume(problem.chain)
    true = min(peak(problem, choice)[0] for choice in nested_choices(problem))
    found = least_of(problem)
    assert peak(problem, found.choice) == (found.least_bytes, found.position)
    assert LeastPeak(problem).bound <= true <= found.least_bytes
    if shape is CHAINS:
        assert found.least_bytes == true
    if found.is_proved:
        assert found.least_bytes == true


@pytest.mark.parametrize("solve", [rotor.solve, CombinedSolver()])
def test_what_is_below_the_least_peak_of_nested_choices_is_proved_impossible(solve):
    problem = chain(30)
    result = solve(problem, 0, time_limit=LIMIT)
    assert isinstance(result, InfeasibleChoice)
    assert result.is_proved
    assert result.choice.segments
    assert check(problem, result.choice, result.least_bytes) == ()
    reached = solve(problem, result.least_bytes, time_limit=LIMIT)
    assert check(problem, reached.choice, result.least_bytes, seconds=reached.seconds) == ()


@settings(max_examples=25, deadline=None)
@given(st.data())
def test_a_rough_answer_fits_and_is_never_better_than_the_best(data):
    problem = data.draw(block_problems(CHAINS))
    solve = CombinedSolver()
    budget = data.draw(st.integers(0, peak(problem, BlockChoice(options=(0,) * len(problem.blocks)))[0]))
    best = solve(problem, budget, time_limit=LIMIT)
    rough = solve.roughly(problem, budget, time_limit=LIMIT)
    assert isinstance(rough, InfeasibleChoice) == isinstance(best, InfeasibleChoice)
    if not isinstance(rough, InfeasibleChoice):
        assert check(problem, rough.choice, budget, seconds=rough.seconds) == ()
        # These are so small that nothing is rounded.
        assert rough.seconds == pytest.approx(best.seconds)


def judged(problem):
    """Seconds, peak and segments of every choice."""
    return [(extra_seconds(problem, c), peak(problem, c)[0], c.segments) for c in nested_choices(problem)]


ANY_CHAIN = st.builds(
    Shape, blocks=st.just((2, 4)), skips=st.booleans(), options=st.integers(2, 3), batches=st.integers(1, 2)
)


@settings(max_examples=25, deadline=None, phases=[Phase.explicit, Phase.reuse, Phase.generate])
@given(st.data())
def test_no_choice_is_below_the_bound(data):
    problem = with_states(data, data.draw(block_problems(data.draw(ANY_CHAIN))))
    assume(problem.chain)
    every = judged(problem)
    nested = NestedSolver(problem, time.monotonic() + LIMIT)
    peaks = [most for _, most, _ in every]
    budget = data.draw(st.integers(min(peaks) - 2, max(peaks)))
    fitting = [(seconds, segments) for seconds, most, segments in every if most <= budget]
    assert nested.bound(problem, budget) <= min((seconds for seconds, _ in fitting), default=math.inf)
    with_segment = [seconds for seconds, segments in fitting if segments]
    assert nested.bound(problem, budget, with_segment=True) <= min(with_segment, default=math.inf)


@settings(max_examples=25, deadline=None, phases=[Phase.explicit, Phase.reuse, Phase.generate])
@given(st.data())
def test_the_best_of_all_says_no_more_than_enumeration_shows(data):
    problem = data.draw(block_problems(data.draw(ANY_CHAIN)))
    assume(problem.chain)
    problem, solve = with_states(data, problem), CombinedSolver()
    for corrected in (problem, with_other_steady_bytes(data, problem)):
        every = judged(corrected)
        peaks = [most for _, most, _ in every]
        budget = data.draw(st.integers(min(peaks) - 2, max(peaks)))
        result = solve(corrected, budget, time_limit=LIMIT)
        best = min((seconds for seconds, most, _ in every if most <= budget), default=math.inf)
        flat = min((seconds for seconds, most, segments in every if most <= budget and not segments), default=math.inf)
        match result:
            case OptimalChoice():
                assert result.seconds == pytest.approx(best, rel=1e-4)
            case FeasibleChoice():
                assert result.bound_seconds <= best <= result.seconds * (1 + 1e-9)
                assert result.seconds <= flat * (1 + 1e-5)
            case _:
                assert isinstance(result, InfeasibleChoice)
                assert flat == math.inf
                assert result.least_bytes >= min(peaks)
                assert result.least_bytes == min(peaks) or not result.is_proved
                continue
        assert check(corrected, result.choice, budget, seconds=result.seconds) == ()


def with_other_steady_bytes(data, problem):
    """What a trace may say of the problem's positions after all."""
    positions = tuple(
        replace(position, fixed_bytes=position.fixed_bytes + data.draw(st.integers(-2, 2)))
        for position in problem.positions
    )
    return replace(problem, positions=positions)


@settings(max_examples=25, deadline=None, phases=[Phase.explicit, Phase.reuse, Phase.generate])
@given(st.data())
def test_the_best_of_all_is_found_and_proved_where_steady_bytes_never_fall(data):
    problem = data.draw(block_problems(CHAINS))
    every = judged(problem)
    budget = data.draw(st.integers(min(most for _, most, _ in every), max(most for _, most, _ in every)))
    result = CombinedSolver()(problem, budget, time_limit=LIMIT)
    assert isinstance(result, OptimalChoice | FeasibleChoice)
    assert result.seconds == pytest.approx(min(seconds for seconds, most, _ in every if most <= budget))


def test_segments_are_found_though_something_flat_fits():
    problem = chain(30)
    flat = ilp.solve(problem, 160, time_limit=LIMIT)
    result = CombinedSolver()(problem, 160, time_limit=LIMIT)
    assert isinstance(flat, OptimalChoice)
    assert result.choice.segments
    assert result.seconds < flat.seconds
    assert check(problem, result.choice, 160, seconds=result.seconds) == ()


@settings(max_examples=40, deadline=None)
@given(st.data())
def test_several_micro_batches_are_planned_within_the_budget(data):
    problem = data.draw(block_problems(Shape(blocks=(2, 6), skips=data.draw(st.booleans()), batches=3)))
    assume(problem.chain)
    flat = [0] * len(problem.blocks)
    budget = data.draw(
        st.integers(
            peak(problem, BlockChoice(options=tuple(flat)))[0] // 3, peak(problem, BlockChoice(options=tuple(flat)))[0]
        )
    )
    result = rotor.solve(problem, budget, time_limit=LIMIT)
    if isinstance(result, FeasibleChoice):
        assert check(problem, result.choice, budget, seconds=result.seconds) == ()
    else:
        assert isinstance(result, InfeasibleChoice)
        assert peak(problem, result.choice) == (result.least_bytes, result.position)
        assert result.least_bytes > budget
        again = rotor.solve(problem, result.least_bytes, time_limit=LIMIT)
        assert isinstance(again, FeasibleChoice)
