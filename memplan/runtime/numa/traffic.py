"""What crosses between NUMA nodes in a step: batches on their way to the GPU, and what is offloaded to pinned memory.

    data worker ──► pinned memory ──► GPU        each arrow crosses where its two ends are on different nodes

Arithmetic on the placement, not a measurement: what ranks send to each other and what other processes do is not in it.
"""

import itertools
from collections import defaultdict
from collections.abc import Iterator, Sequence

from memplan.runtime.numa.placement import NodeTraffic, RankPlacement
from memplan.runtime.numa.records import Topology
from memplan.units import Bytes


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
