"""The search for a plan that fits when it is traced: with devices that hold more than the formula says."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, cast

import pytest

from memplan.plan.checkpoint.block.memory import extra_seconds, peak, position_bytes
from memplan.plan.checkpoint.block.records import (
    Block,
    BlockProblem,
    Choice,
    Infeasible,
    Optimal,
    Option,
    Position,
    Result,
)
from memplan.plan.checkpoint.prove import MOST_ROUNDS, Proof, Traced, prove
from memplan.runtime.checkpoint.records import Action
from memplan.units import Bytes

BLOCKS = 6


def option(action: Action, kept: int, seconds: float) -> Option:
    return Option(
        action=action,
        kept_bytes=Bytes(kept),
        forward_peak_bytes=Bytes(100),
        backward_peak_bytes=Bytes(100),
        seconds=seconds,
        flops=0,
        holds=(),
    )


def problem() -> BlockProblem:
    options = (option(Action.KEEP, 100, 0.0), option(Action.CHECKPOINT, 10, 1.0))
    positions = [
        Position(name=f"{phase} {block}", phase=phase, block=block, fixed_bytes=Bytes(1000), seconds=1.0)
        for phase, order in (("forward", range(BLOCKS)), ("backward", reversed(range(BLOCKS))))
        for block in order
    ]
    return BlockProblem(
        positions=tuple(positions),
        blocks=tuple(
            Block(module=f"{index}", kind=0, spans=((index, 2 * BLOCKS - 1 - index),), options=options)
            for index in range(BLOCKS)
        ),
        interfaces=(),
        chain=False,
        step_seconds=12.0,
        step_flops=0,
    )


def solve(given: BlockProblem, budget: Bytes) -> Result:
    """Checkpoints as many of the first blocks as it must: optimal for equal blocks."""
    for count in range(BLOCKS + 1):
        choice = Choice(options=(1,) * count + (0,) * (BLOCKS - count))
        if peak(given, choice)[0] <= budget:
            return Optimal(choice=choice, seconds=extra_seconds(given, choice))
    most, at = peak(given, choice)
    return Infeasible(position=at, least_bytes=most, choice=choice)


@dataclass(slots=True)
class Device:
    """A device whose peak is the formula's and something more."""

    more: Callable[[Choice], int]
    missed: int = 0
    traced: int = 0

    def trace(self, choice: Choice) -> Traced:
        self.traced += 1
        live = max(self.positions(choice))
        return cast("Traced", _Fake(choice=choice, device_bytes=live + self.more(choice), lost_bytes=self.more(choice)))

    def positions(self, choice: Choice) -> list[int]:
        return [nbytes + (self.missed if sum(choice.options) else 0) for nbytes in position_bytes(problem(), choice)]

    def prove(self, budget: int) -> Proof:
        unplanned = Choice(options=(0,) * BLOCKS)
        return prove(
            problem(),
            self.trace(unplanned),
            budget,
            solve=solve,
            trace=self.trace,
            positions=lambda probe: self.positions(cast("Any", probe)),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class _Fake:
    """Stands for ``Traced``: its probe is the choice itself."""

    choice: Choice
    device_bytes: int
    lost_bytes: int

    @property
    def probe(self) -> Choice:
        return self.choice

    @property
    def seconds(self) -> float:
        return extra_seconds(problem(), self.choice)


def best_fit(device: Device, budget: int) -> float | None:
    """Seconds of the cheapest choice whose device peak fits, by trying all counts."""
    choices = [Choice(options=(1,) * count + (0,) * (BLOCKS - count)) for count in range(BLOCKS + 1)]
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
    assert proof.rounds <= 1
    assert (proof.traced.device_bytes <= budget) == (expected is not None)
    if expected is not None:
        assert proof.traced.seconds == expected
        assert proof.is_first


@pytest.mark.parametrize("budget", range(1300, 1800, 60))
@pytest.mark.parametrize("missed", [0, 60])
def test_what_formula_and_allocator_take_beyond_is_found_out(budget: int, missed: int) -> None:
    # Every checkpointed block costs the allocator something that the unplanned step does not show.
    device = Device(lambda choice: 50 + 7 * sum(choice.options), missed)
    proof = device.prove(budget)
    assert (proof.traced.device_bytes <= budget) == (best_fit(device, budget) is not None)
    assert proof.rounds <= MOST_ROUNDS + 1


def test_a_careful_formula_is_not_the_last_word() -> None:
    # The unplanned step wastes 300 bytes, a planned one none.
    device = Device(lambda choice: 0 if sum(choice.options) else 300)
    proof = device.prove(1500)
    assert proof.traced.seconds == best_fit(device, 1500)


def test_an_impossible_budget_brings_the_smallest_plan() -> None:
    proof = Device(lambda _: 50).prove(1100)
    assert proof.traced.device_bytes > 1100
    assert proof.traced.choice.options == (1,) * BLOCKS
    assert isinstance(proof.result, Infeasible)


@pytest.mark.parametrize("budget", range(1500, 2300, 50))
def test_what_is_kept_may_cost_the_allocator_more_than_its_bytes(budget: int) -> None:
    # Every kept block fragments the device's memory: the unplanned step says nothing of what a planned one loses.
    device = Device(lambda choice: 50 + 90 * (BLOCKS - sum(choice.options)))
    proof = device.prove(budget)
    expected = best_fit(device, budget)
    assert (proof.traced.device_bytes <= budget) == (expected is not None)
    if expected is not None:
        # A few rounds of halving: within one block of the best.
        assert proof.traced.seconds <= expected + 1


class _Sparing(Device):
    """Every checkpointed block takes less than the formula says everywhere: what the step before has left behind."""

    def positions(self, choice: Choice) -> list[int]:
        return [nbytes - 30 * sum(choice.options) for nbytes in position_bytes(problem(), choice)]


@pytest.mark.parametrize("budget", range(1200, 1700, 10))
def test_a_plan_a_little_over_the_budget_is_not_the_last_one(budget: int) -> None:
    device = _Sparing(lambda _: 50)
    proof = device.prove(budget)
    expected = best_fit(device, budget)
    assert (proof.traced.device_bytes <= budget) == (expected is not None)
    if expected is not None:
        assert proof.traced.seconds == expected
