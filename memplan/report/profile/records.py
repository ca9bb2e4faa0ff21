"""What comes of laying a recording over a plan."""

from dataclasses import dataclass
from typing import NamedTuple

from memplan.report.profile.plan import Predicted


class Deviation(NamedTuple):
    """How far apart the curves are at one event that both sides have."""

    event: int
    """On the plan's timeline."""
    step: int
    """0 for set-up."""
    phase: str
    """As the plan calls it."""
    predicted_bytes: int
    measured_bytes: int

    @property
    def nbytes(self) -> int:
        """Predicted less measured."""
        return self.predicted_bytes - self.measured_bytes


class Piece(NamedTuple):
    """Set-up or one step, side by side."""

    step: int
    """0 for set-up; -1 for the whole run, where no steps were marked."""
    predicted_events: int
    measured_events: int
    matched: int
    """Events that both have, in order and in size."""
    predicted_peak_bytes: int
    """Most alive in it."""
    measured_peak_bytes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Overlay:
    """A recording over a plan."""

    target: str
    """What was predicted."""
    gpu: str
    """On what."""
    side: Predicted
    """The plan's timeline, with as many steps as were compared."""
    pieces: tuple[Piece, ...]
    """In order of time."""
    predicted_peak: int
    """Most alive at once in the pieces compared."""
    measured_peak: int
    """Likewise."""
    largest: Deviation | None
    """Where the curves are farthest apart; None where nothing could be compared."""
    median_bytes: int
    """Half of the events are no farther apart."""
    between_bytes: int
    """Between two events that both have, where others differ: how far apart the highest levels of both sides are at
    most, or the lowest."""
    compared: int
    """Events that both have and whose level is known on both sides."""
    base_bytes: int
    """Bytes of the plan from before the recording, added to what was measured."""
    curve: tuple[int, ...]
    """Measured bytes at each sample of ``side.digest.curve``: the highest of its stretch."""
    gaps: tuple[tuple[int, int], ...]
    """Stretches of the plan's timeline, half-open, whose events the run does not have."""
    notes: tuple[str, ...]
    """What stands in the way of comparing all, each a sentence."""

    @property
    def predicted_events(self) -> int:
        """Of all pieces."""
        return sum(piece.predicted_events for piece in self.pieces)

    @property
    def measured_events(self) -> int:
        """Of all pieces."""
        return sum(piece.measured_events for piece in self.pieces)

    @property
    def matched(self) -> int:
        """Of all pieces."""
        return sum(piece.matched for piece in self.pieces)

    @property
    def share(self) -> float:
        """Matched events as a share of the longer side; 1.0 for two empty ones."""
        longer = max(self.predicted_events, self.measured_events)
        return self.matched / longer if longer else 1.0
