"""A deadline on any clock."""

import time
from collections.abc import Callable

FASTEST_WALL = 10.0
"""Seconds on the wall taken for one of processor time, at most."""


class Deadline:
    """Seconds by a clock, and shares of them."""

    def __init__(self, clock: Callable[[], float], seconds: float) -> None:
        self._clock, self._begin, self.seconds = clock, clock(), seconds
        self._wall = time.monotonic()

    def spent(self) -> float:
        """Seconds since the beginning."""
        return self._clock() - self._begin

    def left_until(self, share: float) -> float:
        """Seconds until a share of all is spent; negative afterwards."""
        return share * self.seconds - self.spent()

    def solver_seconds(self, share: float) -> float:
        """The same for one who looks at the clock on the wall, which may run faster than the given one."""
        pace = (time.monotonic() - self._wall) / max(self.spent(), 1e-3)
        return self.left_until(share) * min(max(pace, 1.0), FASTEST_WALL)

    def stretch(self, share: float) -> Callable[[], float]:
        """A clock of the time from here to a share of all, running from 0 to 1."""
        begin, end = self.spent(), share * self.seconds
        return lambda: (self.spent() - begin) / (end - begin) if end > begin else 1.0
