"""Dealing out the memory of nodes: to each rank from its own node, and from the nearest others where that is full."""

from collections.abc import Sequence
from dataclasses import dataclass

from memplan.runtime.numa.records import NumaNode, Topology
from memplan.units import Bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class Pinned:
    """One rank's pinned memory."""

    own: int
    """The node of its cores."""
    home: int
    """The node that its memory prefers."""
    parts: tuple[tuple[int, Bytes], ...]
    """Node and size."""
    short_bytes: Bytes
    """For which there is no room."""


def pin(topology: Topology, nodes: Sequence[int], size: Bytes) -> list[Pinned]:
    """Deal out pinned memory.

    Own nodes come first for all ranks: what one rank takes elsewhere must not push another one off its node. What a
    node cannot hold is shared out evenly among its ranks.
    """
    room = {node.index: node.available_bytes for node in topology.nodes}
    homes = [_order(topology, node)[0].index for node in nodes]
    sharing = {home: homes.count(home) for home in homes}
    local = []
    for home in homes:
        taken = min(size, room[home] // sharing[home])  # Of what is left among who is left: no byte remains for others.
        local.append(taken)
        room[home] -= taken
        sharing[home] -= 1
    found = []
    for own, home, taken in zip(nodes, homes, local, strict=True):
        parts = [(home, Bytes(taken))] if taken else []
        left = size - taken
        for node in _order(topology, own):
            if more := min(left, room[node.index]):
                room[node.index] -= more
                left -= more
                parts.append((node.index, Bytes(more)))
        found.append(Pinned(own=own, home=home, parts=_merged(parts), short_bytes=Bytes(left)))
    return found


def _order(topology: Topology, own: int) -> list[NumaNode]:
    """Nodes that memory may come from, the best first.

    A node without CPUs comes after all that have some: it is CXL memory, or the memory of a GPU, which is no place to
    stage data for it.
    """
    here = topology.by_index[own]
    nodes = [node for node in topology.nodes if node.available_bytes] or [here]
    return sorted(nodes, key=lambda node: (not node.cpus, here.distance(node.index), node.index))


def _merged(parts: Sequence[tuple[int, Bytes]]) -> tuple[tuple[int, Bytes], ...]:
    sizes: dict[int, int] = {}
    for node, size in parts:
        sizes[node] = sizes.get(node, 0) + size
    return tuple((node, Bytes(size)) for node, size in sizes.items())
