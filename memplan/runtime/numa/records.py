"""What a machine looks like to the process that asks: nodes, cores, GPUs and network cards."""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Literal

from memplan.units import Bytes

DeviceKind = Literal["gpu", "nic"]
LOCAL_DISTANCE, REMOTE_DISTANCE = 10, 20
"""What Linux takes where the firmware tells no distances (include/linux/topology.h)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Core:
    """A physical core, as far as this process may use it."""

    cpus: tuple[int, ...]
    """Its hardware threads (SMT siblings) that are allowed, ascending, at least one."""
    first: int
    """The lowest of its threads, allowed or not: the core's name."""
    package: int
    """The socket."""
    cache: int
    """Lowest CPU of those that share its last-level cache: the name of its core complex."""


@dataclass(frozen=True, slots=True, kw_only=True)
class NumaNode:
    """A NUMA node: CPUs, memory, or both."""

    index: int
    """Its number in the system."""
    cpus: tuple[int, ...]
    """All its CPUs that are online, whether this process may use them or not; empty: CXL memory, a GPU's memory."""
    cores: tuple[Core, ...]
    """What of them is allowed, by socket, last-level cache and number."""
    total_bytes: Bytes
    """Its memory; 0: it has none."""
    free_bytes: Bytes
    """Of that, unused now."""
    cache_bytes: Bytes
    """Of that, page cache, which the kernel drops where memory is asked for on this very node."""
    huge_free_bytes: Bytes
    """Of that, in huge pages which are set aside and free."""
    memory_allowed: bool
    """May this process allocate here?"""
    distances: Mapping[int, int]
    """Node → relative latency; 10 is local."""

    @property
    def allowed_cpus(self) -> tuple[int, ...]:
        """The CPUs that this process may use, core by core."""
        return tuple(cpu for core in self.cores for cpu in core.cpus)

    @property
    def available_bytes(self) -> int:
        """What this process can have here without swapping."""
        return self.free_bytes + self.cache_bytes if self.memory_allowed else 0

    def distance(self, other: int) -> int:
        """Relative latency of another node's memory."""
        return self.distances.get(other, LOCAL_DISTANCE if other == self.index else REMOTE_DISTANCE)


@dataclass(frozen=True, slots=True, kw_only=True)
class Device:
    """A GPU or a network card."""

    kind: DeviceKind
    """What it is."""
    address: str
    """On the PCI bus: ``0000:18:00.0``."""
    vendor: str
    """``nvidia``, ``amd``, ``intel``, or the PCI number."""
    name: str
    """The driver's name for it; empty where only the bus knows it."""
    node: int | None
    """The NUMA node that it hangs on; None: nobody tells."""
    told_by: str
    """What tells the node; empty where nothing does."""
    index: int | None = None
    """A GPU's number in this process (``cuda:0``), after CUDA_VISIBLE_DEVICES; None: not visible, or no GPU."""
    uuid: str = ""
    """As the driver tells it."""
    memory_node: int | None = None
    """Where the GPU's own memory is a NUMA node (GH200, GB200): which."""


@dataclass(frozen=True, kw_only=True)
class Topology:
    """A machine. Not slotted, because it remembers where its CPUs are."""

    nodes: tuple[NumaNode, ...]
    """By number, at least one."""
    devices: tuple[Device, ...]
    """GPUs in the order of their numbers, then those that are not visible, then network cards."""
    possible_nodes: tuple[int, ...]
    """Numbers that the kernel keeps for nodes, whether there is such a node or not."""
    cpu_limit: float | None
    """Processors' worth of time that the control group allows; None: no limit."""
    memory_limit: Bytes | None
    """Host memory that the control group allows; None: no limit."""
    notes: tuple[str, ...]
    """What was missing, and what was taken instead."""

    @cached_property
    def by_index(self) -> Mapping[int, NumaNode]:
        """Number → node."""
        return {node.index: node for node in self.nodes}

    @property
    def gpus(self) -> tuple[Device, ...]:
        """The GPUs that this process sees, by their number."""
        return tuple(device for device in self.devices if device.index is not None)

    @property
    def allowed_cpus(self) -> frozenset[int]:
        """The CPUs that this process may use."""
        return frozenset(cpu for node in self.nodes for cpu in node.allowed_cpus)
