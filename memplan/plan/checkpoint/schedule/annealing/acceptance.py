"""The rule by which annealing accepts changes of a schedule."""

import math
from dataclasses import dataclass
from random import Random
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import numpy as np


@dataclass(slots=True, kw_only=True)
class AcceptanceRule:
    """The rule by which changes of a schedule are accepted, at one temperature."""

    temperature: float
    """In units of cost; a change that costs this much more is made about once in three times."""
    weight: float
    """Cost per byte above the budget and position."""
    random: Random
    """Seeded."""
    noise: "np.ndarray"
    """Standard Gumbel noise: the least of ``energy - temperature * noise`` is a draw from Boltzmann's distribution."""

    def accepts(self, change: float) -> bool:
        """Metropolis' rule."""
        return change <= 0 or self.random.random() < math.exp(-change / self.temperature)

    def draw(self, energies: "np.ndarray") -> int:
        """Draw one of several states by their energies."""
        offset = self.random.randrange(len(self.noise) - len(energies))
        return int((energies - self.temperature * self.noise[offset : offset + len(energies)]).argmin())


def excess(memory: "np.ndarray", budget: float) -> "np.ndarray":
    """Bytes above the budget at each position."""
    import numpy as np

    return np.maximum(memory - budget, 0.0)
