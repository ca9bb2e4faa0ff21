"""Buffers with lifespans, and where they go: dynamic storage allocation (Garey and Johnson's SR2).

    offset
      ▲  ┌────────┐                 height: end of the highest buffer
      │  │   B    │┌─────────┐      load:   most bytes alive at once; no placement is lower
      │  └────────┘│    C    │
      │ ┌──────────┴─────────┴┐
      │ │          A          │
      └─┴─────────────────────┴──► time

Two buffers whose lifespans meet never share a byte.
"""

from dataclasses import dataclass

from memplan.units import Bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class ArenaBuffer:
    """A buffer that needs a place in an arena."""

    name: str
    """For people and files; unique in its problem."""
    start: int
    """First moment at which it is alive."""
    end: int
    """First moment at which it is gone: the lifespan is half-open, and not empty."""
    size: int
    """Bytes; 0 needs no place, and is given offset 0."""
    alignment: int = 1
    """Its offset is a multiple of this."""
    offset: int | None = None
    """Where it must lie; None: anywhere."""
    gaps: tuple[tuple[int, int], ...] = ()
    """Half-open stretches inside the lifespan in which its bytes may be used by others; sorted, apart."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Problem:
    """Buffers to be placed in one arena."""

    buffers: tuple[ArenaBuffer, ...]
    """In the order of their file or trace."""
    capacity: int | None = None
    """Bytes that the arena may have; None: as few as possible are wanted."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ArenaPlacement:
    """Where every buffer goes."""

    offsets: tuple[int, ...]
    """Per buffer of the problem, in its order."""
    height: Bytes
    """End of the highest buffer."""


@dataclass(frozen=True, slots=True, kw_only=True)
class OptimalPlacement:
    """No placement is lower."""

    placement: ArenaPlacement
    method: str
    """Who found it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FeasiblePlacement:
    """It fits the capacity, if there is one; something lower may exist."""

    placement: ArenaPlacement
    method: str
    """Who found it."""
    bound: Bytes
    """No placement is lower than this."""


@dataclass(frozen=True, slots=True, kw_only=True)
class InfeasiblePlacement:
    """Proved: no placement fits the capacity."""

    reason: str
    """Why, in words: which moment holds more, or that every placement was excluded."""
    bound: Bytes
    """No placement is lower than this; above the capacity."""
    best: ArenaPlacement | None = None
    """The lowest placement known, over the capacity; None where none was looked for."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PlacementTimedOut:
    """The time was over before a placement within the capacity was found, or excluded."""

    best: ArenaPlacement | None
    """The lowest placement found, over the capacity."""
    bound: Bytes
    """No placement is lower than this."""


Result = OptimalPlacement | FeasiblePlacement | InfeasiblePlacement | PlacementTimedOut
"""How a search ended."""
