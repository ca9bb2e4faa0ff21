"""The checkpoint plan of a choice of options."""

from collections.abc import Sequence

from memplan.plan.checkpoint.blocks.probe.menu import OptionCandidate
from memplan.plan.checkpoint.blocks.problem import BlockChoice, BlockProblem
from memplan.runtime.checkpoint.records import Action, BlockPlan, CheckpointPlan, Segment


def plan_of(modules: Sequence[str], chosen: Sequence[OptionCandidate]) -> CheckpointPlan:
    """Return the plan in which each module has its chosen option."""
    return CheckpointPlan(
        blocks=tuple(
            BlockPlan(module=module, action=each.action, saved=each.saved)
            for module, each in zip(modules, chosen, strict=True)
            if each.action is not Action.KEEP
        )
    )


def plan_for(problem: BlockProblem, choice: BlockChoice) -> CheckpointPlan:
    """Return the plan of a solver's choice."""
    chosen = [block.options[option] for block, option in zip(problem.blocks, choice.options, strict=True)]
    return CheckpointPlan(
        blocks=tuple(
            BlockPlan(module=block.module, action=option.action, saved=option.saved)
            for block, option in zip(problem.blocks, chosen, strict=True)
            if option.action is not Action.KEEP
        ),
        segments=tuple(
            Segment(modules=tuple(block.module for block in problem.blocks[first:end]))
            for first, end in choice.segments
        ),
    )
