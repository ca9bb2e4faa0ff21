"""A series of any length in bounded room. Torch-free."""

ROOM = 4096
"""Values that are kept: judging them takes under a millisecond, and a leak is seen once it has gone on for 1/68 of the
run (thirty bins of at least half as many)."""


class Floor:
    """The least value of each bin of steps; bins double whenever the room is full. Not thread-safe."""

    def __init__(self, room: int = ROOM) -> None:
        self.width = 1
        """Steps to a bin."""
        self.values: list[float] = []
        """Of full bins, oldest first."""
        self._room = room
        self._open = 0
        self._least = float("inf")

    def add(self, value: float) -> None:
        """Add a step."""
        self._least = min(self._least, value)
        self._open += 1
        if self._open < self.width:
            return
        self.values.append(self._least)
        self._open, self._least = 0, float("inf")
        if len(self.values) == self._room:
            self.values = [min(pair) for pair in zip(self.values[::2], self.values[1::2], strict=True)]
            self.width *= 2
