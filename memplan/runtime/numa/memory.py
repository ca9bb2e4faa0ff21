"""Dealing out the memory of nodes, to each rank from its own or the nearest others; and what crosses between them.

Between nodes go, in a step, batches on their way to the GPU, and what is offloaded to pinned memory::

    data worker ──► pinned memory ──► GPU        each arrow crosses where its two ends are on different nodes

Arithmetic on the placement, not a measurement: what ranks send to each other and what other processes do is not in it.
"""

import itertools
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from memplan.runtime.numa.placement import NodeTraffic, RankPlacement
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


def traffic(topology: Topology, ranks: Sequence[RankPlacement], step_bytes: Bytes) -> tuple[NodeTraffic, ...]:
    """Return what crosses between nodes in a step, the most first.

    ``step_bytes`` is what each rank writes into its pinned memory and copies on to its GPU in a step.
    """
    totals: defaultdict[tuple[int, int], int] = defaultdict(int)
    for rank in ranks:
        for source, target, size in _ways(rank, step_bytes):
            if source != target:
                totals[source, target] += size
    found = [
        NodeTraffic(
            source=source, target=target, bytes=Bytes(size), distance=topology.by_index[source].distance(target)
        )
        for (source, target), size in totals.items()
    ]
    return tuple(sorted(found, key=lambda each: (-each.bytes, each.source, each.target)))


def _ways(rank: RankPlacement, step_bytes: int) -> Iterator[tuple[int, int, int]]:
    """Workers write where the memory is; the GPU reads from there."""
    held = rank.pinned or ((rank.memory_node, Bytes(1)),)
    gpu = None if rank.gpu is None else rank.gpu.node
    for (node, _), size in zip(held, _shares([size for _, size in held], step_bytes), strict=True):
        yield rank.node, node, size
        if gpu is not None:
            yield node, gpu, size


def _shares(sizes: Sequence[int], whole: int) -> list[int]:
    """A whole number of bytes shared out by sizes, none lost."""
    ends = [whole * sum(sizes[:count]) // sum(sizes) for count in range(len(sizes) + 1)]
    return [end - start for start, end in itertools.pairwise(ends)]
