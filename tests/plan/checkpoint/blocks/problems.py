"""Problems for tests of proofs, made by hand."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any, Literal, cast

from memplan.plan.checkpoint.blocks.problem.memory import peak, position_bytes
from memplan.plan.checkpoint.blocks.problem.records import (
    BlockChoice,
    BlockProblem,
    ChoiceResult,
    InfeasibleChoice,
    ModuleBlock,
    OptimalChoice,
    Option,
    Position,
)
from memplan.plan.checkpoint.blocks.problem.seconds import extra_seconds
from memplan.plan.checkpoint.blocks.prove.records import Proof, TracedPlan
from memplan.plan.checkpoint.blocks.prove.search import prove
from memplan.runtime.checkpoint.records import Action
from memplan.units import Bytes

BLOCKS = 6


CONTEXT = 500


def option(action: Action, kept: int, seconds: float) -> Option:
    return Option(
        action=action,
        kept_bytes=Bytes(kept),
        forward_peak_bytes=Bytes(100),
        backward_peak_bytes=Bytes(100),
        seconds=seconds,
        holds=(),
    )


def problem() -> BlockProblem:
    options = (option(Action.KEEP, 100, 0.0), option(Action.CHECKPOINT, 10, 1.0))
    phases: tuple[tuple[Literal["forward", "backward"], Iterable[int]], ...] = (
        ("forward", range(BLOCKS)),
        ("backward", reversed(range(BLOCKS))),
    )
    positions = [
        Position(name=f"{phase} {block}", phase=phase, block=block, fixed_bytes=Bytes(1000), seconds=1.0)
        for phase, order in phases
        for block in order
    ]
    return BlockProblem(
        positions=tuple(positions),
        blocks=tuple(
            ModuleBlock(module=f"{index}", kind=0, spans=((index, 2 * BLOCKS - 1 - index),), options=options)
            for index in range(BLOCKS)
        ),
        interfaces=(),
        chain=False,
        step_seconds=12.0,
    )


def solve(given: BlockProblem, budget: Bytes) -> ChoiceResult:
    """Checkpoints as many of the first blocks as it must: optimal for equal blocks."""
    for count in range(BLOCKS + 1):
        choice = BlockChoice(options=(1,) * count + (0,) * (BLOCKS - count))
        if peak(given, choice)[0] <= budget:
            return OptimalChoice(choice=choice, seconds=extra_seconds(given, choice))
    most, at = peak(given, choice)
    return InfeasibleChoice(position=at, least_bytes=most, choice=choice)


@dataclass(slots=True)
class Device:
    """A device whose peak is the formula's and something more."""

    more: Callable[[BlockChoice], int]
    missed: int = 0
    traced: int = 0

    def trace(self, choice: BlockChoice) -> TracedPlan:
        self.traced += 1
        live = self.positions(choice)
        return TracedPlan(
            choice=choice,
            probe=cast("Any", None),
            live=tuple(live),
            device_bytes=CONTEXT + max(live) + self.more(choice),
            seconds=extra_seconds(problem(), choice),
            flops=0,
        )

    def positions(self, choice: BlockChoice) -> list[int]:
        return [nbytes + (self.missed if sum(choice.options) else 0) for nbytes in position_bytes(problem(), choice)]

    def prove(self, budget: int) -> Proof:
        unplanned = self.trace(BlockChoice(options=(0,) * BLOCKS))
        return prove(problem(), unplanned, budget + CONTEXT, context_bytes=CONTEXT, solve=solve, trace=self.trace)
