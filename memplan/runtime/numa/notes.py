"""What one should know of a placement before using it."""

from collections.abc import Sequence

from memplan.runtime.numa.cpulist import format_list
from memplan.runtime.numa.memory import Pinned
from memplan.runtime.numa.placement import Demand, RankPlacement
from memplan.runtime.numa.records import Topology
from memplan.units import format_bytes


def core_notes(topology: Topology, ranks: Sequence[RankPlacement]) -> list[str]:
    """Of ranks off their node, shared GPUs and cores, limits of time."""
    moved: dict[tuple[int, str], list[int]] = {}
    for rank in ranks:
        if rank.reason:
            moved.setdefault((rank.node, rank.reason), []).append(rank.rank)
    notes = [f"node {node} has rank {format_list(who)}: {reason}" for (node, reason), who in moved.items()]
    seated = {rank.node for rank in ranks}
    idle = {node.index: len(node.allowed_cpus) for node in topology.nodes if node.cores and node.index not in seated}
    if idle:
        notes.append(f"no rank is on node {format_list(idle)}, whose {sum(idle.values())} CPUs stay idle")
    if topology.gpus and len(ranks) > len(topology.gpus):
        notes.append(f"{len(ranks)} ranks share {len(topology.gpus)} GPUs")
    if any(len(rank.workers) >= len(rank.cores) for rank in ranks):
        notes.append("more workers than cores beside the training process's own: workers share cores")
    used = len({cpu for rank in ranks for cpu in rank.cpus})
    if topology.cpu_limit is not None and topology.cpu_limit < used:
        notes.append(f"the control group allows {topology.cpu_limit:g} processors' worth of time on {used} CPUs")
    return notes


def memory_notes(topology: Topology, pinned: Sequence[Pinned], demand: Demand) -> list[str]:
    """Of full nodes, page cache, limits of memory."""
    notes = []
    for node in topology.nodes:
        asked = demand.pinned_bytes * sum(lying.own == node.index for lying in pinned)
        if asked > node.available_bytes:
            room = f"{format_bytes(node.available_bytes)} of node {node.index}"
            notes.append(f"{format_bytes(asked)} of pinned memory do not fit in the {room}")
        elif asked > node.free_bytes:
            notes.append(f"node {node.index} has {format_bytes(asked)} only after dropping page cache")
    total = demand.pinned_bytes * len(pinned)
    if topology.memory_limit is not None and total > topology.memory_limit:
        limit = format_bytes(topology.memory_limit)
        notes.append(f"{format_bytes(total)} of pinned memory are more than the control group's limit of {limit}")
    return notes
