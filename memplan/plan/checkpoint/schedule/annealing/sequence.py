"""A schedule under change: computations in a row, who reads whom, their memory, and the rule that accepts changes.

A *computation* is one run of one node; a node has several if it is computed again. They are numbered once and for all,
so that a move shifts positions but touches no reader. Everything that moves need in bulk stands in numpy arrays.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from random import Random
from typing import TYPE_CHECKING

from memplan.plan.checkpoint.schedule.ordered import OrderedProblem, useful

if TYPE_CHECKING:
    import numpy as np


SPARE = 3
"""Computations of each node, on average, that a schedule under change has room for."""


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


class LiveSequence:
    """A valid schedule and its memory, kept up to date by ``moves``.

    The budget should suffice; the schedule may take more.
    """

    def __init__(self, problem: OrderedProblem, numbers: Sequence[int], budget: int) -> None:
        import numpy as np

        numbers = useful(problem, numbers)
        room = len(numbers) + SPARE * len(problem.sizes)
        self.problem = problem
        self.budget = float(budget)
        self.sizes = [float(size) for size in problem.sizes]
        self.scratch = [float(size) for size in problem.scratch]
        self.extra = sum(problem.costs[number] for number in numbers) - sum(problem.costs)
        """Cost of everything that is computed again."""
        self.node = [0] * room
        """Of each computation."""
        self.inputs: list[list[int]] = [[] for _ in range(room)]
        """The computations that each one reads."""
        self.readers: list[list[int]] = [[] for _ in range(room)]
        """The computations that read each one."""
        self.copies: list[list[int]] = [[] for _ in problem.sizes]
        """The computations of each node, in order of position."""
        self.spare = list(range(room - 1, len(numbers) - 1, -1))
        """Numbers that no computation has."""
        self.row = np.arange(len(numbers))
        """The computations in order of position."""
        self.position = np.arange(room)
        """Where each computation stands in the row."""
        self.last = np.arange(room)
        """The last computation that reads each one; itself where none does."""
        self.load = np.zeros(room)
        """Size and scratch of each computation's node."""
        for computation, number in enumerate(numbers):
            latest = {source: self.copies[source][-1] for source in problem.predecessors[number]}
            self.enter(computation, number, list(latest.values()))
            self.copies[number].append(computation)
        self.memory = self._memory()
        """Bytes alive at each position."""

    def enter(self, computation: int, number: int, inputs: list[int]) -> None:
        """Record a computation that already has its position, and that its inputs are read by it."""
        self.node[computation] = number
        self.load[computation] = self.sizes[number] + self.scratch[number]
        self.inputs[computation], self.readers[computation], self.last[computation] = inputs, [], computation
        for source in inputs:
            self.readers[source].append(computation)
            if self.position[self.last[source]] < self.position[computation]:
                self.last[source] = computation

    def leave(self, computation: int) -> None:
        """Take a computation that nothing reads out of the records, all but the row and the memory."""
        self.copies[self.node[computation]].remove(computation)
        self.extra -= self.problem.costs[self.node[computation]]
        for source in self.inputs[computation]:
            self.readers[source].remove(computation)
            if self.last[source] == computation:
                self.last[source] = self.last_reader(source)
        self.inputs[computation] = []
        self.spare.append(computation)

    def last_reader(self, computation: int) -> int:
        """The reader with the greatest position; the computation itself where there is none."""
        return max(self.readers[computation], key=self.position.__getitem__, default=computation)

    def end(self, computation: int) -> int:
        """Position of the last use."""
        return int(self.position[self.last[computation]])

    def end_without(self, computation: int, reader: int) -> int:
        """Position of the last use, were it not for one reader."""
        if self.last[computation] != reader:
            return self.end(computation)
        others = (int(self.position[other]) for other in self.readers[computation] if other != reader)
        return max(others, default=int(self.position[computation]))

    def latest_before(self, number: int, position: int) -> int:
        """The last computation of a node before a position; there must be one."""
        copies = self.copies[number]
        if len(copies) == 1:
            return copies[0]
        return max((copy for copy in copies if self.position[copy] < position), key=self.position.__getitem__)

    def neighbours(self, computation: int) -> tuple[int | None, int | None]:
        """The computations of the same node before and after this one."""
        copies = self.copies[self.node[computation]]
        if len(copies) == 1:
            return None, None
        index = copies.index(computation)
        return copies[index - 1] if index else None, copies[index + 1] if index + 1 < len(copies) else None

    def numbers(self) -> list[int]:
        """The schedule in the problem's numbers."""
        return [self.node[computation] for computation in self.row]

    def _memory(self) -> "np.ndarray":
        import numpy as np

        sizes = np.array([self.sizes[self.node[computation]] for computation in self.row])
        changes = np.zeros(len(self.row) + 1)
        changes[:-1] += sizes
        np.subtract.at(changes, self.position[self.last[self.row]] + 1, sizes)
        memory: np.ndarray = np.cumsum(changes[:-1]) + self.load[self.row] - sizes
        return memory


def excess(memory: "np.ndarray", budget: float) -> "np.ndarray":
    """Bytes above the budget at each position."""
    import numpy as np

    return np.maximum(memory - budget, 0.0)
