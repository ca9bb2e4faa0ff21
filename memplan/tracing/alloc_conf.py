"""Options of the allocator that a target sets itself, or that a program is started with."""

import os

NAMES = ("PYTORCH_ALLOC_CONF", "PYTORCH_CUDA_ALLOC_CONF")
"""Variables that PyTorch reads them from, the first before the second (c10/core/AllocatorConfig.cpp)."""


def _in_force() -> str:
    return next((value for name in NAMES if (value := os.environ.get(name))), "")


_INHERITED = _in_force()
"""What this process was started with, before any user code ran."""


class OwnOptions:
    """The options in force where a target runs.

    Args:
        is_program: Does the environment of memplan count too? A program is run as it would be in this very shell; of a
            model or a step in a file, only what the file sets is known to be the run's.
    """

    def __init__(self, *, is_program: bool) -> None:
        self._is_program = is_program
        self._seen: str | None = None

    def look(self) -> None:
        """Note what is in force now: a program's environment is gone once it has ended."""
        self._seen = _in_force()

    def found(self) -> str:
        """The value of ``PYTORCH_CUDA_ALLOC_CONF``; empty for PyTorch's own options."""
        found = _in_force() if self._seen is None else self._seen
        return found if self._is_program or found != _INHERITED else ""
