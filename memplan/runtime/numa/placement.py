"""Where everything goes: the plan's records."""

from dataclasses import dataclass
from typing import Literal

from memplan.runtime.numa.records import Core, Device
from memplan.units import Bytes

State = Literal["local", "spilled", "short"]
"""All pinned memory on its rank's node; some on other nodes; or more is asked for than there is."""


NONE = Bytes(0)


@dataclass(frozen=True, slots=True, kw_only=True)
class Demand:
    """What is to be placed."""

    ranks: int | None = None
    """Processes; None: one for each visible GPU, or for each node where there is none."""
    workers: int = 0
    """Data workers of each rank."""
    pinned_bytes: Bytes = NONE
    """Pinned host memory of each rank."""
    step_bytes: Bytes = NONE
    """What each rank sends through it to its GPU in a step; 0: as much as it holds."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RankPlacement:
    """One rank."""

    rank: int
    """Its number on this machine (``LOCAL_RANK``)."""
    gpu: Device | None
    """What it computes on; None: the CPU."""
    node: int
    """The node of its cores."""
    cores: tuple[Core, ...]
    """Its own: no other rank has a thread of them, except where a core's threads had to be divided."""
    workers: tuple[tuple[int, ...], ...]
    """CPUs of each data worker; workers share them where there are more workers than cores."""
    memory_node: int
    """Where its memory is to lie: its own node, or the nearest one that has memory."""
    pinned: tuple[tuple[int, Bytes], ...]
    """Node and size of each part of its pinned memory."""
    reason: str
    """Why it is not on its GPU's node; empty where it is."""

    @property
    def cpus(self) -> tuple[int, ...]:
        """All CPUs of the rank and its workers, ascending."""
        return tuple(sorted(cpu for core in self.cores for cpu in core.cpus))

    @property
    def main_cores(self) -> tuple[Core, ...]:
        """What the training process itself keeps: a core of its own for each worker, where there are enough, is not."""
        return self.cores[: max(1, len(self.cores) - len(self.workers))]


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeTraffic:
    """Bytes from one node to another."""

    source: int
    """Where they are read."""
    target: int
    """Where they go."""
    bytes: Bytes
    """In one step of all ranks."""
    distance: int
    """The firmware's relative latency between the two; 10 is local."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MachinePlacement:
    """All ranks of this machine."""

    ranks: tuple[RankPlacement, ...]
    """By number."""
    interleave: tuple[int, ...]
    """Nodes for what all ranks share (a data set in shared memory): those with CPUs and memory."""
    state: State
    """How the pinned memory lies."""
    short_bytes: Bytes
    """Pinned memory for which there is no room anywhere."""
    notes: tuple[str, ...]
    """What one should know before using it."""
    traffic: tuple[NodeTraffic, ...] = ()
    """What crosses between nodes in a step, the most first."""
    step_bytes: Bytes = NONE
    """What each rank sends through its pinned memory in that step."""
