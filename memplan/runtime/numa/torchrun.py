"""What ``torchrun --numa-binding`` would do on a machine: ``torch/numa/binding.py`` of torch 2.13, told of a topology.

A table for comparing, not for binding: torch itself does that. A test holds it to torch's own functions.
"""

from collections.abc import Mapping, Sequence
from typing import Literal, get_args

from memplan.runtime.numa.placement import MachinePlacement
from memplan.runtime.numa.records import Core, Device, NumaNode, Topology

Mode = Literal["exclusive", "node", "socket", "core-complex"]
MODES: tuple[Mode, ...] = get_args(Mode)
SINCE = "2.9"
"""The first torch whose torchrun has the option."""

Binding = frozenset[int] | str
"""CPUs, or why it fails."""


def bindings(topology: Topology, mode: Mode) -> tuple[Binding, ...]:
    """What each visible GPU's rank would be bound to."""
    return tuple(_binding(topology, gpu, mode) for gpu in topology.gpus)


def differences(topology: Topology, placement: MachinePlacement) -> Mapping[Mode, str]:
    """How each mode differs from a placement's CPUs; empty where it does not."""
    return {mode: _difference(bindings(topology, mode), placement) for mode in MODES}


def _difference(found: Sequence[Binding], placement: MachinePlacement) -> str:
    if len(found) < len(placement.ranks):
        return f"there are {len(found)} GPUs for {len(placement.ranks)} ranks, and it binds by GPU"
    pairs = list(zip(placement.ranks, found, strict=False))
    for rank, binding in pairs:
        if isinstance(binding, str):
            return f"rank {rank.rank} fails: {binding}"
    shared = sum(len(binding) for _, binding in pairs) - len(frozenset().union(*(binding for _, binding in pairs)))
    other = [rank.rank for rank, binding in pairs if binding != frozenset(rank.cpus)]
    if other and shared:
        return "ranks share CPUs"
    return f"other CPUs for rank {', '.join(map(str, other))}" if other else ""


def _node_of(topology: Topology, gpu: Device) -> NumaNode | None:
    # It knows ``numa_node`` only, and takes -1 for node 0.
    return topology.by_index.get(gpu.node if gpu.node is not None and gpu.told_by == "numa_node" else 0)


def _binding(topology: Topology, gpu: Device, mode: Mode) -> Binding:
    node = _node_of(topology, gpu)
    if node is None:
        return "there is no node 0, which it takes where the system does not say"
    if not node.cores:
        return f"node {node.index} has no CPU that may be used"
    if mode == "node":
        return frozenset(node.allowed_cpus)
    if mode == "socket":
        return _socket(topology, node)
    here = [other for other in topology.gpus if _node_of(topology, other) is node]
    return _exclusive(node, here.index(gpu), len(here)) if mode == "exclusive" else _complex(node, here.index(gpu))


def _socket(topology: Topology, node: NumaNode) -> Binding:
    found: set[int] = set()
    for index in topology.possible_nodes:
        other = topology.by_index.get(index)
        if other is None or not other.cores:
            # Every possible node is asked for its socket, by way of one of its CPUs.
            return f"node {index}, which is possible, has no CPU that may be used"
        if _package(other) == _package(node):
            found.update(other.allowed_cpus)
    return frozenset(found)


def _package(node: NumaNode) -> int:
    return min(node.cores, key=lambda core: min(core.cpus)).package


def _exclusive(node: NumaNode, place: int, count: int) -> Binding:
    cores = sorted(node.cores, key=lambda core: core.first)
    size, longer = divmod(len(cores), count)
    if size == 0:
        return f"node {node.index} has {len(cores)} cores for {count} GPUs"
    start = place * size + min(place, longer)
    return frozenset(cpu for core in cores[start : start + size + (place < longer)] for cpu in core.cpus)


def _complex(node: NumaNode, place: int) -> Binding:
    groups: dict[int, list[Core]] = {}
    for core in node.cores:
        groups.setdefault(core.cache, []).append(core)
    sets = {name: frozenset(cpu for core in cores for cpu in core.cpus) for name, cores in groups.items()}
    ordered = sorted(sets, key=lambda name: (-len(sets[name]), name))
    return sets[ordered[place % len(ordered)]]
