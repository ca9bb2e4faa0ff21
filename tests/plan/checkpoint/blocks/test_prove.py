"""The search for a plan that fits when it is traced: with devices that hold more than the formula says."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from memplan.plan.checkpoint.blocks.problem.memory import peak, position_bytes
from memplan.plan.checkpoint.blocks.problem.records import (
    BlockChoice,
    BlockProblem,
    ChoiceResult,
    InfeasibleChoice,
)
from memplan.plan.checkpoint.blocks.problem.seconds import extra_seconds
from memplan.plan.checkpoint.blocks.prove.search import HALVINGS, LADDER, MOST_ROUNDS, prove
from memplan.units import Bytes
from tests.plan.checkpoint.blocks.problems import BLOCKS, CONTEXT, Device, problem, solve


def best_fit(device: Device, budget: int) -> float | None:
    """Seconds of the cheapest choice whose device peak fits, by trying all counts."""
    choices = [BlockChoice(options=(1,) * count + (0,) * (BLOCKS - count)) for count in range(BLOCKS + 1)]
    fitting = [choice for choice in choices if max(device.positions(choice)) + device.more(choice) <= budget]
    return min((extra_seconds(problem(), choice) for choice in fitting), default=None)


def test_a_step_that_fits_is_left_alone() -> None:
    device = Device(lambda _: 50)
    proof = device.prove(10_000)
    assert proof.rounds == 0
    assert device.traced == 1
    assert sum(proof.traced.choice.options) == 0


@pytest.mark.parametrize("budget", range(1200, 1800, 60))
def test_an_exact_formula_needs_one_round(budget: int) -> None:
    device = Device(lambda _: 50)
    proof = device.prove(budget)
    expected = best_fit(device, budget)
    assert proof.rounds <= 1 + len(LADDER)
    assert (proof.traced.device_bytes <= budget + CONTEXT) == (expected is not None)
    if expected is not None:
        assert proof.traced.seconds == expected


@pytest.mark.parametrize("budget", range(1300, 1800, 60))
@pytest.mark.parametrize("missed", [0, 60])
def test_what_formula_and_allocator_take_beyond_is_found_out(budget: int, missed: int) -> None:
    # Every checkpointed block costs the allocator something that the unplanned step does not show.
    device = Device(lambda choice: 50 + 7 * sum(choice.options), missed)
    proof = device.prove(budget)
    assert (proof.traced.device_bytes <= budget + CONTEXT) == (best_fit(device, budget) is not None)
    assert proof.rounds <= MOST_ROUNDS + HALVINGS + len(LADDER) + 1


def test_a_careful_formula_is_not_the_last_word() -> None:
    # The unplanned step wastes 300 bytes, a planned one none.
    device = Device(lambda choice: 0 if sum(choice.options) else 300)
    proof = device.prove(1500)
    assert proof.traced.seconds == best_fit(device, 1500)


def test_an_impossible_budget_brings_the_smallest_plan() -> None:
    proof = Device(lambda _: 50).prove(1100)
    assert proof.traced.device_bytes > 1100 + CONTEXT
    assert proof.traced.choice.options == (1,) * BLOCKS
    assert isinstance(proof.result, InfeasibleChoice)


@pytest.mark.parametrize("budget", range(1500, 2300, 50))
def test_what_is_kept_may_cost_the_allocator_more_than_its_bytes(budget: int) -> None:
    # Every kept block fragments the device's memory: the unplanned step says nothing of what a planned one loses.
    device = Device(lambda choice: 50 + 90 * (BLOCKS - sum(choice.options)))
    proof = device.prove(budget)
    expected = best_fit(device, budget)
    assert (proof.traced.device_bytes <= budget + CONTEXT) == (expected is not None)
    if expected is not None:
        # A few rounds of halving: within one block of the best.
        assert proof.traced.seconds <= expected + 1


class _Sparing(Device):
    """Every checkpointed block takes less than the formula says everywhere: what the step before has left behind."""

    def positions(self, choice: BlockChoice) -> list[int]:
        return [nbytes - 30 * sum(choice.options) for nbytes in position_bytes(problem(), choice)]


@pytest.mark.parametrize("budget", range(1200, 1700, 10))
def test_a_plan_a_little_over_the_budget_is_not_the_last_one(budget: int) -> None:
    device = _Sparing(lambda _: 50)
    proof = device.prove(budget)
    expected = best_fit(device, budget)
    assert (proof.traced.device_bytes <= budget + CONTEXT) == (expected is not None)
    if expected is not None:
        assert proof.traced.seconds == expected


losses = st.lists(st.integers(0, 400), min_size=BLOCKS + 1, max_size=BLOCKS + 1)


@given(losses=losses, budget=st.integers(1000, 2200))
def test_no_plan_that_fits_is_cheaper_than_the_bound(losses: list[int], budget: int) -> None:
    # The allocator loses what it likes, plan by plan.
    device = Device(lambda choice: losses[sum(choice.options)])
    proof, best = device.prove(budget), best_fit(device, budget)
    if isinstance(proof.limit, InfeasibleChoice):
        assert best is None
    elif best is not None and proof.bound_seconds is not None:
        assert proof.bound_seconds <= best
    if proof.traced.device_bytes <= budget + CONTEXT:
        assert proof.bound_seconds is not None
        assert best is not None
        assert proof.bound_seconds <= best <= proof.traced.seconds


@given(lost=st.integers(0, 400))
def test_an_allocator_that_loses_nothing_leaves_no_gap(lost: int) -> None:
    # Only the unplanned step loses something: the search starts too low, and finds its way up to the bound.
    device = Device(lambda choice: 0 if sum(choice.options) else lost)
    for budget in range(1200, 1700, 100):
        proof = device.prove(budget)
        assert proof.traced.seconds == proof.bound_seconds == best_fit(device, budget)


@given(budget=st.integers(1200, 1700))
def test_a_formula_that_says_too_much_does_not_raise_the_bound(budget: int) -> None:
    device = _Sparing(lambda _: 0)
    proof = device.prove(budget)
    if proof.traced.device_bytes <= budget + CONTEXT:
        assert proof.bound_seconds is not None
        assert proof.bound_seconds <= proof.traced.seconds


def test_plans_that_lose_less_are_found_above_those_that_lose_much() -> None:
    # The unplanned step loses 400 bytes, and so do plans with at least four blocks checkpointed; those between do not.
    device = Device(lambda choice: 0 if 0 < sum(choice.options) < 4 else 400)
    proof = device.prove(1600)
    assert proof.traced.device_bytes <= 1600 + CONTEXT
    assert 0 < sum(proof.traced.choice.options) < 4


@pytest.mark.parametrize("halvings", [0, HALVINGS])
def test_plans_are_looked_for_between_the_smallest_and_what_takes_too_much(
    halvings: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    # The one round that there is takes the unplanned step's word for it that nothing is lost.
    for name, value in {"MOST_ROUNDS": 1, "LADDER": (), "HALVINGS": halvings}.items():
        monkeypatch.setattr(f"memplan.plan.checkpoint.blocks.prove.search.{name}", value)
    device = Device(lambda choice: 300 if 0 < sum(choice.options) < BLOCKS else 0)
    proof = device.prove(1650)
    assert proof.traced.device_bytes <= 1650 + CONTEXT
    assert proof.traced.seconds == (best_fit(device, 1650) if halvings else BLOCKS)


def test_what_costs_nothing_is_not_looked_for() -> None:
    proof = Device(lambda _: 50).prove(10_000)
    assert proof.bound_seconds == 0.0
    assert proof.solve_seconds == 0.0


def test_one_more_choice_is_traced_once() -> None:
    device = Device(lambda _: 50)
    proof = device.prove(1400)
    least = BlockChoice(options=(1,) * BLOCKS)
    more = proof.with_traced(least, device.trace)
    assert [each.choice for each in more.found] == [*(each.choice for each in proof.found), least]
    assert more.with_traced(least, device.trace) is more


def test_one_more_choice_is_the_plan_where_it_is_quicker_and_no_larger() -> None:
    device = Device(lambda _: 50)
    proof = device.prove(1400)
    least = BlockChoice(options=(1,) * BLOCKS)
    quick = replace(device.trace(least), seconds=proof.traced.seconds - 0.5)
    assert proof.with_traced(least, lambda _: quick).traced == quick
    large = replace(quick, device_bytes=proof.traced.device_bytes + 1)
    assert proof.with_traced(least, lambda _: large).traced == proof.traced


def test_what_an_allocator_loses_on_nested_segments_is_not_asked_of_flat_choices() -> None:
    # The solver finds only segments in what the unplanned step leaves, on which the allocator loses 900 bytes.
    nested = BlockChoice(options=(1,) * BLOCKS, segments=((0, BLOCKS),))
    device = Device(lambda choice: 900 if choice.segments else 100 if sum(choice.options) else 500)

    def weighed(given: BlockProblem, budget: Bytes) -> ChoiceResult:
        flat = solve(given, budget)
        return replace(flat, choice=nested) if isinstance(flat, InfeasibleChoice) else flat

    unplanned = device.trace(BlockChoice(options=(0,) * BLOCKS))
    budget = 1500 + CONTEXT
    proof = prove(
        replace(problem(), chain=True), unplanned, budget, context_bytes=CONTEXT, solve=weighed, trace=device.trace
    )
    assert proof.traced.seconds == best_fit(device, 1500)
    assert not any(each.choice.segments for each in proof.found)


def test_what_a_solver_calls_impossible_is_tried_with_the_smallest_of_all_flat_choices() -> None:
    # The solver knows but one choice, and the allocator loses more on it than the formula saves.
    known = BlockChoice(options=(1,) * (BLOCKS - 1) + (0,))
    device = Device(lambda choice: 300 if choice == known else 50)
    proof = prove(
        problem(),
        device.trace(BlockChoice(options=(0,) * BLOCKS)),
        1300 + CONTEXT,
        context_bytes=CONTEXT,
        solve=lambda given, _: InfeasibleChoice(position=0, least_bytes=peak(given, known)[0], choice=known),
        trace=device.trace,
    )
    assert proof.traced.choice == BlockChoice(options=(1,) * BLOCKS)
    assert proof.traced.device_bytes <= 1300 + CONTEXT
