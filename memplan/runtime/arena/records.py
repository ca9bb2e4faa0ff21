"""What a step allocates, in order, and where a plan puts it."""

from dataclasses import dataclass

from memplan.units import Bytes

CPU_ALIGNMENT = 64
"""Of CPU tensors, in bytes (c10/core/alignment.h: ``gAlignment``)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StepRecording:
    """The allocations of CPU tensors that one step made, on the thread that ran it."""

    events: tuple[tuple[int, int], ...]
    """Number of the allocation and its bytes, or -1 when it is given back; in the order in which that happened."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ArenaPlan:
    """Where the n-th allocation of a step goes."""

    sizes: tuple[int, ...]
    """Bytes that each allocation asks for."""
    offsets: tuple[int | None, ...]
    """Place of each in the arena; None leaves it to PyTorch: what outlives the step."""
    height: Bytes
    """Bytes of the arena."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ArenaCounts:
    """What became of the allocations of one step."""

    planned: int
    """Served at their place in the arena."""
    outside: int
    """Left to PyTorch by the plan."""
    unlike: int
    """Left to PyTorch because they were not of the planned size, or more than planned: another step than recorded."""
    occupied: int
    """Left to PyTorch because somebody still used their place."""
    outside_bytes: Bytes
    """Bytes of all that was left to PyTorch."""
    alive: int
    """Allocations in an arena that are still alive."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GraphBuffer:
    """One intermediate of a captured graph."""

    root: int
    """Number of its storage in the graph."""
    nbytes: int
    """Its size."""
    start: int
    """Node that makes it."""
    end: int
    """First node that no longer needs it."""
