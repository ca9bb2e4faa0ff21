"""Problems of the size of a 405B model: 126 blocks, 12 options, a stretch between any two runs."""

import random

import pytest

from memplan.plan.checkpoint.blocks.problem.memory import peak
from memplan.plan.checkpoint.blocks.problem.records import (
    BlockChoice,
    BlockProblem,
    FeasibleChoice,
    Interface,
    ModuleBlock,
    OptimalChoice,
    Option,
    Position,
)
from memplan.plan.checkpoint.blocks.solve import ilp, rotor
from memplan.runtime.checkpoint.records import Action
from memplan.units import GIB, MIB
from tests.plan.checkpoint.blocks.support.check import check

STREAM = 256 * MIB


def menu(seed: int) -> list[tuple[Action, int, int, int, float]]:
    """(action, kept, forward peak, backward peak, seconds) of a block that keeps about 16 times what it passes on."""
    noise = random.Random(seed)

    def rounded(size: float) -> int:
        return int(size) // 512 * 512

    whole = rounded(STREAM * (15 + 4 * noise.random()))
    found = [
        (Action.KEEP, whole, whole + 3 * STREAM, 4 * STREAM, 0.0),
        (Action.CHECKPOINT, 0, 6 * STREAM, whole + 4 * STREAM, 0.05),
    ]
    for number in range(1, 11):
        share = number / 11
        kept = rounded(whole * share * (0.9 + 0.1 * noise.random()))
        running = rounded(STREAM * (4 + noise.random()))
        seconds = 0.05 * (1 - share) ** (1.3 + noise.random())
        found.append((Action.SELECTIVE, kept, kept + running, whole - kept + running, seconds))
    return found


def transformer(count: int, *, keep_holds_input: bool) -> BlockProblem:
    positions: list[Position] = []
    spans = [[0, 0] for _ in range(count)]
    steady = 30 * GIB

    def stretch(phase, block=None, seconds=0.0):
        name = f"{phase} {block}"
        positions.append(Position(name=name, phase=phase, block=block, fixed_bytes=steady, seconds=seconds))
        return len(positions) - 1

    stretch("forward")
    for block in range(count):
        spans[block][0] = stretch("forward", block, 0.05)
        stretch("forward")
    for block in reversed(range(count)):
        steady += 50 * MIB  # its gradients
        spans[block][1] = stretch("backward", block, 0.1)
        stretch("backward")
    stretch("optimizer")
    interfaces = tuple(
        Interface(nbytes=STREAM, born=spans[k - 1][0] if k else 0, forward_end=spans[k][0]) for k in range(count)
    )
    blocks = tuple(
        ModuleBlock(
            module=f"layers.{k}",
            kind=0,
            spans=(tuple(spans[k]),),
            options=tuple(
                Option(
                    action=action,
                    kept_bytes=kept,
                    forward_peak_bytes=forward,
                    backward_peak_bytes=backward,
                    seconds=seconds,
                    holds=(k,) if keep_holds_input or action is not Action.KEEP else (),
                )
                for action, kept, forward, backward, seconds in menu(1)
            ),
        )
        for k in range(count)
    )
    return BlockProblem(
        positions=tuple(positions),
        blocks=blocks,
        interfaces=interfaces,
        chain=True,
        step_seconds=0.15 * count,
    )


def budget_between(problem: BlockProblem, share: float) -> int:
    count = len(problem.blocks)
    most, least = (peak(problem, BlockChoice(options=(option,) * count))[0] for option in (0, 1))
    return int(least + share * (most - least))


@pytest.mark.parametrize("keep_holds_input", [True, False])
@pytest.mark.parametrize("share", [0.5, pytest.param(0.05, marks=pytest.mark.slow)])
def test_the_integer_program_of_a_big_transformer_is_proved(keep_holds_input, share):
    problem = transformer(126, keep_holds_input=keep_holds_input)
    budget = budget_between(problem, share)
    result = ilp.solve(problem, budget, time_limit=120.0)
    assert isinstance(result, OptimalChoice)
    assert check(problem, result.choice, budget, seconds=result.seconds) == ()


@pytest.mark.slow
def test_rotor_on_a_deep_chain():
    problem = transformer(96, keep_holds_input=True)
    budget = budget_between(problem, 0.02)
    result = rotor.solve(problem, budget, time_limit=120.0)
    assert isinstance(result, FeasibleChoice)
    assert check(problem, result.choice, budget, seconds=result.seconds) == ()
    flat = ilp.solve(problem, budget, time_limit=120.0)
    assert isinstance(flat, OptimalChoice)
    # Nesting gains more than the slots lose.
    assert result.seconds < flat.seconds
