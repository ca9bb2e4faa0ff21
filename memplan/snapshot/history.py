"""Replays the history in a real snapshot and compares every address: the model checked against GPUs."""

from memplan.errors import EstimateError
from memplan.replay.policy import AllocatorPolicy
from memplan.snapshot.comparison import HistoryComparison, HistoryReplay
from memplan.snapshot.records import DeviceSnapshot


def replay_history(snapshot: DeviceSnapshot, *, policy: AllocatorPolicy | None = None) -> HistoryReplay:
    """Work out the state before the history from the state after it, play the history, and compare.

    Without a policy it ran with PyTorch's defaults. Whether segments were expandable is seen in the snapshot itself.

    Raises:
        EstimateError: The history contradicts itself, or mixes fixed and expandable segments.
    """
    return _comparison(snapshot, policy or AllocatorPolicy()).play()


def kinds_of_segments(snapshot: DeviceSnapshot) -> frozenset[bool]:
    """True if there are expandable segments in a snapshot or its history, False if there are fixed ones; or both."""
    segments = {segment.expandable for segment in snapshot.layout.segments}
    actions = {event.action for event in snapshot.events if event.action.startswith("segment")}
    return frozenset(segments | {action.endswith("map") for action in actions})


def _comparison(snapshot: DeviceSnapshot, policy: AllocatorPolicy) -> HistoryComparison:
    kinds = kinds_of_segments(snapshot)
    if len(kinds) > 1:
        raise EstimateError("this history mixes fixed and expandable segments, as captured graphs and user pools do")
    if True in kinds:
        from memplan.snapshot.comparison_expandable import ExpandableComparison

        return ExpandableComparison(snapshot, policy)
    return HistoryComparison(snapshot, policy)
