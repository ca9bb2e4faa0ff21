"""The op-level problem: values, who is computed from whom, and a schedule that may compute some of them again."""

from collections.abc import Sequence
from dataclasses import dataclass

from memplan.units import Bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class RematGraph:
    """A directed acyclic graph of values. Node ``i`` may be computed when all of its predecessors are in memory."""

    names: tuple[str, ...]
    """For people and for those who apply a schedule."""
    sizes: tuple[int, ...]
    """Bytes of each node's value (0: no memory of its own)."""
    costs: tuple[float, ...]
    """Time (or FLOPs) of computing it once."""
    predecessors: tuple[tuple[int, ...], ...]
    """What each node reads; smaller indices only: the order of the nodes is the order of the unplanned step."""
    scratch: tuple[int, ...] = ()
    """Bytes needed only while a node is computed; empty: none anywhere."""
    fixed_bytes: int = 0
    """Alive all the time: parameters, inputs."""
    pinned: frozenset[int] = frozenset()
    """Nodes that run exactly once: random numbers, collectives, mutations."""
    outputs: frozenset[int] = frozenset()
    """Nodes whose value must be there at the end."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Schedule:
    """Nodes in order of computation.

    A value is kept from its computation to its last use before it is computed again; an output's last computation is
    kept to the end. A value that nothing uses is alive while it is computed.
    """

    nodes: tuple[int, ...]
    """Each node at least once; every predecessor of a node somewhere before it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ScheduleFigures:
    """Peak and cost of a schedule."""

    peak_bytes: Bytes
    """Most bytes alive while some node is computed: its own value, everything kept, its scratch."""
    peak_at: int
    """Position in the schedule where that is first reached."""
    cost: float
    """Sum over all computations."""


@dataclass(frozen=True, slots=True, kw_only=True)
class OptimalSchedule:
    """No cheaper schedule fits, over every order and every recomputation."""

    schedule: Schedule
    figures: ScheduleFigures


@dataclass(frozen=True, slots=True, kw_only=True)
class FeasibleSchedule:
    """It fits; something cheaper may exist."""

    schedule: Schedule
    figures: ScheduleFigures
    bound_cost: float | None
    """No schedule that the method considers is cheaper; None where nothing is known."""
    bound_for: str = ""
    """What the bound holds for, in words: ``this order of nodes``, ``every schedule``."""


@dataclass(frozen=True, slots=True, kw_only=True)
class InfeasibleSchedule:
    """No schedule fits: when one node is computed, what must be in memory takes more.

    That is at least the node's inputs and its value, and whatever is needed later and cannot be computed again.
    """

    node: int
    """That node."""
    least_bytes: Bytes
    """What must be in memory then, whatever the schedule."""


@dataclass(frozen=True, slots=True, kw_only=True)
class NoSchedule:
    """None was found in time; there may be one."""

    best: FeasibleSchedule | None
    """The schedule of the lowest peak found, though it is over the budget."""


ScheduleResult = OptimalSchedule | FeasibleSchedule | InfeasibleSchedule | NoSchedule


def readers_of(predecessors: Sequence[Sequence[int]]) -> list[list[int]]:
    """Return who reads each node, in order."""
    readers: list[list[int]] = [[] for _ in predecessors]
    for node, sources in enumerate(predecessors):
        for source in sources:
            readers[source].append(node)
    return readers
