"""What the answer takes for granted, beside the assumptions of its trace."""

from collections.abc import Sequence

from memplan.plan.checkpoint.blocks.answer.inputs import AnswerInputs
from memplan.runtime.checkpoint.records import Action, CheckpointPlan


def assumptions(inputs: AnswerInputs, plan: CheckpointPlan) -> Sequence[str]:
    """Return the sentences about what was taken for granted."""
    sentences = ["extra time is by roofline: each op at the device's peak arithmetic rate or memory bandwidth"]
    if inputs.roofline.assumed:
        sentences.append(
            f"{inputs.profile.name} states no rates: {inputs.roofline.flops / 1e12:g} TFLOP/s "
            f"and {inputs.roofline.bandwidth / 1e9:g} GB/s are assumed"
        )
    if any(row.action is Action.OFFLOAD for row in plan.blocks):
        sentences.append(
            "bytes on their way to the host and back count as on the device; a trace alone moves them in no time"
        )
    if inputs.dropped:
        sentences.append(
            f"not planned, since they do not run forward and backward in turn: {', '.join(inputs.dropped)}"
        )
    return [*sentences, *inputs.notes]
