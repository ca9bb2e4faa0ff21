"""What follows an epoch: loaders that fed the steps end, so that a program comes to its evaluation."""

from typing import Any
from weakref import WeakKeyDictionary

BATCHES = 2
"""Batches of a loader that begins after the epoch: the second is fetched while what was made of the first is there."""


class Epoch:
    """Counts what loaders hand over, and ends the epoch when it is asked to.

    Args:
        ends: Does the program go on to what follows the epoch, once its steps are known?
    """

    def __init__(self, *, ends: bool) -> None:
        self.has_ended = False
        """Is the program past its epoch?"""
        self.is_fed = False
        """Has a loader handed over a batch?"""
        self._ends = ends
        self._handed: WeakKeyDictionary[Any, int] = WeakKeyDictionary()

    def end(self) -> bool:
        """End the epoch, and return whether the program goes on after it."""
        self.has_ended = self._ends and bool(self._handed)
        for loader in self._handed:
            self._handed[loader] = BATCHES
        return self.has_ended

    def fetch(self, loader: Any) -> None:
        """Note that a loader is about to hand over a batch.

        Raises:
            StopIteration: It has no more of them.
        """
        handed = self._handed.get(loader, 0)
        if self.has_ended and handed >= BATCHES:
            raise StopIteration
        self._handed[loader] = handed + 1
        self.is_fed = True
