"""Two sizes of every target: one for a real GPU, and one that a CPU runs in a second, to try the benchmark itself."""

import os
from typing import TypeVar

T = TypeVar("T")

VARIABLE = "MEMPLAN_WORKLOAD_SIZE"
"""Environment variable; ``tiny`` or ``full`` (default)."""


def pick(*, full: T, tiny: T) -> T:
    """The value for the size asked for."""
    return tiny if os.environ.get(VARIABLE) == "tiny" else full
