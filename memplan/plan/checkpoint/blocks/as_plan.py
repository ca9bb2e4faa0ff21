"""A choice as the plan that brings it about."""

from collections.abc import Sequence

from memplan.plan.checkpoint.blocks.probe.menu import Candidate
from memplan.plan.checkpoint.blocks.problem import BlockProblem, Choice
from memplan.runtime.checkpoint.records import Action, BlockPlan, CheckpointPlan, Segment


def plan_of(modules: Sequence[str], chosen: Sequence[Candidate]) -> CheckpointPlan:
    """The plan under which each module does what was chosen for it."""
    return CheckpointPlan(
        blocks=tuple(
            BlockPlan(module=module, action=each.action, saved=each.saved)
            for module, each in zip(modules, chosen, strict=True)
            if each.action is not Action.KEEP
        )
    )


def plan_for(problem: BlockProblem, choice: Choice) -> CheckpointPlan:
    """The plan of a solver's choice."""
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
