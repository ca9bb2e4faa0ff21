"""The checkpoint plan of a choice of options."""

from collections.abc import Sequence

from memplan.plan.checkpoint.blocks.probe.menu import OptionCandidate
from memplan.plan.checkpoint.blocks.problem.records import BlockChoice, BlockProblem, Option
from memplan.runtime.checkpoint.records import Action, BlockPlan, CheckpointPlan, Segment


def plan_of(modules: Sequence[str], chosen: Sequence[OptionCandidate | Option]) -> CheckpointPlan:
    """Return the plan in which each module has its chosen option."""
    return CheckpointPlan(blocks=_blocks(modules, chosen))


def plan_for(problem: BlockProblem, choice: BlockChoice) -> CheckpointPlan:
    """Return the plan of a solver's choice."""
    modules = [block.module for block in problem.blocks]
    chosen = [block.options[option] for block, option in zip(problem.blocks, choice.options, strict=True)]
    segments = tuple(Segment(modules=tuple(modules[first:end])) for first, end in choice.segments)
    return CheckpointPlan(blocks=_blocks(modules, chosen), segments=segments, prefetch=choice.prefetch)


def _blocks(modules: Sequence[str], chosen: Sequence[OptionCandidate | Option]) -> tuple[BlockPlan, ...]:
    return tuple(
        BlockPlan(module=module, action=option.action, saved=option.saved)
        for module, option in zip(modules, chosen, strict=True)
        if option.action is not Action.KEEP
    )
