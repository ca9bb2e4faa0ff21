"""The rows of the integer program for what is fetched ahead from the host (``problem.copies``), and what it costs.

For each backward ``i`` of a row, ``b`` being the bytes that it offloads and ``room`` those that the link carries while
it and what follows it up to the next backward compute::

    next[i]  = b[i] if it offloads, else next[i + 1]                        what its turn or a later one brings back
    left[i]  = b[i] if it offloads, else max(0, left[i + 1] - room[i])      of it, what is not there when i begins
    wait[i]  = max(0, left[i + 1] - room[i]) if it offloads, else 0         what the next one then waits for
    ahead[i] = next[i + 1] if this one or one before it offloads, else 0    on the device before its turn

All are variables that the budget or the price pushes down, so that each ``=`` is a lower bound, with a large constant
where it does not bind.
"""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import Any

from memplan.plan.checkpoint.blocks.problem.copies import backward_rows
from memplan.plan.checkpoint.blocks.problem.records import BlockProblem, Option


class FetchRows:
    """The variables of what comes back.

    ``chosen`` has for each block its options' binary variables; ``unit`` is what a byte counts in the program.
    """

    def __init__(
        self, pulp: Any, lp: Any, problem: BlockProblem, chosen: Sequence[Mapping[int, Any]], unit: float
    ) -> None:
        self._pulp, self._lp, self._problem, self._chosen, self._unit = pulp, lp, problem, chosen, unit
        self.waits: list[Any] = []
        """Bytes that the step waits for, in units."""
        self.at: dict[int, list[Any]] = defaultdict(list)
        """Bytes that are on the device ahead of their backward, by position."""
        self._most = unit * max(option.offloaded_bytes for block in problem.blocks for option in block.options)
        for number, row in enumerate(backward_rows(problem)):
            self._row(number, row)

    def _row(self, number: int, row: Sequence[tuple[int, int]]) -> None:
        most, total = self._most, self._pulp.lpSum(self._bytes(block) for block, _ in row)
        first, hidden = len(self.waits), []
        has_begun: Any = 0
        following, left = self._variable("next", number, 0), self._variable("left", number, 0)
        self.waits.append(following)
        for place, (block, at) in enumerate(row):
            nbytes, offloads = self._bytes(block), self._offloads(block)
            self._lp += following >= nbytes
            self._lp += left >= nbytes
            if place + 1 == len(row):
                break
            positions = range(at, row[place + 1][1])
            room = self._room(positions, f"{number}_{place}")
            after, rest = (self._variable(name, number, place + 1) for name in ("next", "left"))
            wait, ahead, begun = (self._variable(name, number, place) for name in ("wait", "early", "begun"))
            self._lp += following >= after - most * offloads
            self._lp += left >= rest - room - most * offloads
            self._lp += wait >= rest - room - most * (1 - offloads)
            self._lp += begun >= has_begun
            self._lp += begun >= offloads
            self._lp += ahead >= after - most * (1 - begun)
            self.waits.append(wait)
            hidden.append(room)
            for position in positions:
                self.at[position].append(ahead)
            following, left, has_begun = after, rest, begun
        # It follows from the rest, but not for fractions of options: whatever is not hidden is waited for.
        self._lp += self._pulp.lpSum(self.waits[first:]) >= total - self._pulp.lpSum(hidden)

    def _room(self, positions: range, name: str) -> Any:
        """Bytes that the link carries during positions."""
        per_second = self._problem.host_link_bandwidth * self._unit
        seconds: list[Any] = []
        for position in (self._problem.positions[at] for at in positions):
            seconds.append(position.seconds)
            if position.block is not None and position.phase == "backward":
                options, spans = self._options(position.block), len(self._problem.blocks[position.block].spans)
                extra = {number: option.seconds / spans for number, option in options.items()}
                seconds.append(self._pulp.lpSum(extra[o] * self._chosen[position.block][o] for o in extra if extra[o]))
        # What is beyond the largest block would only make the constant larger.
        room = self._lp.add_variable(f"room_{name}", lowBound=0.0, upBound=self._most)
        self._lp += room <= per_second * self._pulp.lpSum(seconds)
        return room

    def _variable(self, name: str, row: int, place: int) -> Any:
        return self._lp.add_variable(f"{name}_{row}_{place}", lowBound=0.0)

    def _options(self, block: int) -> dict[int, Option]:
        return {number: self._problem.blocks[block].options[number] for number in self._chosen[block]}

    def _bytes(self, block: int) -> Any:
        sizes = {o: option.offloaded_bytes * self._unit for o, option in self._options(block).items()}
        return self._pulp.lpSum(size * self._chosen[block][o] for o, size in sizes.items() if size)

    def _offloads(self, block: int) -> Any:
        moved = [o for o, option in self._options(block).items() if option.offloaded_bytes]
        return self._pulp.lpSum(self._chosen[block][o] for o in moved)
