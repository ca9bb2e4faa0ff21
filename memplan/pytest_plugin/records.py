"""What a marker says, and what came of an estimate that a test made."""

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from memplan.measure.records import Estimate
    from memplan.project.records import ProjectJob


@dataclass(frozen=True, slots=True, kw_only=True)
class MarkerLimit:
    """What one marker allows."""

    gpu: str | None
    """The profile that estimates are made for; None: the estimate itself says."""
    bytes: int | None
    """The device peak at most; None: what is usable."""
    typed: str
    """As the test says it, for sentences."""
    job: "ProjectJob | None"
    """What the marker estimates by itself; None: it limits what the test estimates."""
    options: dict[str, object]
    """Of the marker; for estimates that the test makes they are defaults."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Figure:
    """One estimate of a test, as it travels from worker to controller and stays in pytest's cache."""

    key: str
    """The test, and which of its estimates it is."""
    target: str
    """As it was named."""
    gpu: str
    """The profile's name."""
    verdict: str
    """Of the estimate."""
    device_bytes: int
    """The predicted device peak."""
    limit_bytes: int | None
    """What the test allows; None: nothing was said."""
    previous_bytes: int | None
    """The figure that it is compared with; None: there is none."""

    @property
    def grown(self) -> int:
        """Bytes more than before; 0 where there is nothing to compare with."""
        return self.device_bytes - self.previous_bytes if self.previous_bytes is not None else 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Made:
    """An estimate and what is kept of it."""

    estimate: "Estimate"
    """The answer."""
    figure: Figure
    """What is kept."""
