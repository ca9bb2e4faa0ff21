"""The order in which people try things: what costs least and changes least comes first, nothing extreme."""

from memplan.plan.recommend.records import Candidate, Group

ORDER: tuple[Group, ...] = (
    "checkpoint", "loss", "optimizer-step", "split", "attention", "offload", "parallel", "precision", "optimizer",
    "lora", "quantize",
)  # fmt: skip
"""What people reach for when a job does not fit, the first first. A choice of this project, after what the
documentation of torchtune, torchtitan, axolotl and transformers proposes first."""
_PLACE = {group: place for place, group in enumerate(ORDER)}


def usual_rank(candidate: Candidate) -> tuple[int, ...]:
    """Rank a way: all sets of the first changes come before any that has a later one.

    Nothing, checkpointing, chunked loss, both, another optimizer step, that with checkpointing, and so on: no way is
    tried before the simpler ones that it is made of.
    """
    return tuple(sorted((_PLACE[group] for group in candidate.groups), reverse=True))
