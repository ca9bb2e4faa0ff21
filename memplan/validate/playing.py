"""What a real run is made of: who plays a job's steps, and who watches the memory meanwhile."""

from contextlib import AbstractContextManager
from typing import Any, Protocol

from memplan.validate.compiled import RealCompiling
from memplan.validate.records import MeasuredRun


class Meter(Protocol):
    """Watches a device's memory."""

    def start(self) -> None:
        """Begin, before anything of the job exists."""

    def step(self) -> AbstractContextManager[Any]:
        """The context of one step."""

    def finish(self) -> MeasuredRun:
        """End, while the loop and all that it holds still live."""


class Playing(Protocol):
    """A job and how far it has come; it keeps what the job holds alive until it is forgotten itself."""

    done: int
    """Steps run to their end."""
    seconds: float
    """Their wall time."""
    out_of_memory: str
    """The allocator's message, where that ended the run."""

    def play(self, meter: Meter, compiled: RealCompiling, *, steps: int, least: int, limit_seconds: float) -> None:
        """Build the job and run its steps."""
