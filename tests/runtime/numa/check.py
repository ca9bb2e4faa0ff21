"""Is a placement sound? Shares no code with what makes it, and reads nothing but the records."""

from collections import Counter
from collections.abc import Iterator, Mapping

from memplan.runtime.numa.placement import Demand, MachinePlacement, RankPlacement
from memplan.runtime.numa.records import Topology


def check(topology: Topology, placement: MachinePlacement, demand: Demand) -> tuple[str, ...]:
    """Everything that is wrong with a placement, each as a sentence; empty: nothing is."""
    return (
        *_numbers(placement, demand),
        *_cpus(topology, placement),
        *_homes(topology, placement),
        *_fair(topology, placement),
        *_workers(placement, demand),
        *_memory(topology, placement, demand),
    )


def _numbers(placement: MachinePlacement, demand: Demand) -> Iterator[str]:
    if [rank.rank for rank in placement.ranks] != list(range(len(placement.ranks))):
        yield "the ranks are not numbered from 0"
    if demand.ranks is not None and len(placement.ranks) != demand.ranks:
        yield f"{len(placement.ranks)} ranks are placed, {demand.ranks} were asked for"


def _cpus(topology: Topology, placement: MachinePlacement) -> Iterator[str]:
    owner: dict[int, int] = {}
    for rank in placement.ranks:
        here = {cpu for node in topology.nodes if node.index == rank.node for core in node.cores for cpu in core.cpus}
        mine = [cpu for core in rank.cores for cpu in core.cpus]
        if not mine:
            yield f"rank {rank.rank} has no CPU"
        for cpu in mine:
            if cpu not in here:
                yield f"CPU {cpu} of rank {rank.rank} is not an allowed one of node {rank.node}"
            if owner.setdefault(cpu, rank.rank) != rank.rank:
                yield f"CPU {cpu} belongs to ranks {owner[cpu]} and {rank.rank}"
    for node in topology.nodes:
        idle = [cpu for core in node.cores for cpu in core.cpus if cpu not in owner]
        if idle and any(rank.node == node.index for rank in placement.ranks):
            yield f"CPUs {idle} of node {node.index} are nobody's"


def _homes(topology: Topology, placement: MachinePlacement) -> Iterator[str]:
    """On the GPU's node, unless that is full of ranks whose GPU it has; then on the nearest with a CPU to spare."""
    size = {node.index: sum(len(core.cpus) for core in node.cores) for node in topology.nodes}
    seated = Counter(rank.node for rank in placement.ranks)
    for rank in placement.ranks:
        home = rank.gpu.node if rank.gpu else None
        if bool(rank.reason) != (rank.gpu is not None and rank.node != home):
            yield f"rank {rank.rank} on node {rank.node} says '{rank.reason}', its GPU is on node {home}"
        if home is None or home == rank.node:
            continue
        residents = sum(other.node == home and _gpu_node(other) == home for other in placement.ranks)
        if residents < size[home]:
            yield f"rank {rank.rank} is off its GPU's node {home}, which has room"
        distances = next(node.distances for node in topology.nodes if node.index == home)
        for index, room in size.items():
            if seated[index] < room and distances.get(index, 20) < distances.get(rank.node, 20):
                yield f"rank {rank.rank} could be on node {index}, which is nearer than node {rank.node}"


def _gpu_node(rank: RankPlacement) -> int | None:
    return rank.gpu.node if rank.gpu else None


def _fair(topology: Topology, placement: MachinePlacement) -> Iterator[str]:
    """Whole cores, as many for each rank of a node, give or take one."""
    for node in topology.nodes:
        counts = [len(rank.cores) for rank in placement.ranks if rank.node == node.index]
        if not counts or len(counts) > len(node.cores):
            continue
        if max(counts) - min(counts) > 1:
            yield f"the ranks of node {node.index} have between {min(counts)} and {max(counts)} cores"
        whole = {core.first: core.cpus for core in node.cores}
        for rank in placement.ranks:
            if rank.node == node.index and any(core.cpus != whole.get(core.first) for core in rank.cores):
                yield f"rank {rank.rank} has a part of a core"


def _workers(placement: MachinePlacement, demand: Demand) -> Iterator[str]:
    for rank in placement.ranks:
        if len(rank.workers) != demand.workers:
            yield f"rank {rank.rank} has {len(rank.workers)} workers, {demand.workers} were asked for"
        own = {cpu for core in rank.cores for cpu in core.cpus}
        for number, cpus in enumerate(rank.workers):
            if not cpus or not set(cpus) <= own:
                yield f"worker {number} of rank {rank.rank} is not on the rank's CPUs"
            if len(rank.cores) > 1 and set(cpus) & set(rank.cores[0].cpus):
                yield f"worker {number} of rank {rank.rank} is on the training process's own core"


def _memory(topology: Topology, placement: MachinePlacement, demand: Demand) -> Iterator[str]:
    room = {node.index: int(node.free_bytes + node.cache_bytes) for node in topology.nodes if node.memory_allowed}
    used: Counter[int] = Counter()
    for rank in placement.ranks:
        for index, size in rank.pinned:
            used[index] += size
    for index, taken in used.items():
        if taken > room.get(index, 0):
            yield f"node {index} is to hold {taken} B, and has {room.get(index, 0)}"
    if used.total() + placement.short_bytes != demand.pinned_bytes * len(placement.ranks):
        yield "the pinned memory does not add up"
    if placement.short_bytes and used.total() < sum(room.values()):
        yield "memory is said to be short, and there is some left"
    yield from _away(placement, room, used)


def _away(placement: MachinePlacement, room: Mapping[int, int], used: Mapping[int, int]) -> Iterator[str]:
    strangers = {rank.rank: sum(size for index, size in rank.pinned if index != rank.node) for rank in placement.ranks}
    for rank in placement.ranks:
        if strangers[rank.rank] and used.get(rank.node, 0) < room.get(rank.node, 0):
            yield f"{strangers[rank.rank]} B of rank {rank.rank} lie elsewhere, and its own node {rank.node} has room"
    expected = "short" if placement.short_bytes else "spilled" if any(strangers.values()) else "local"
    if placement.state != expected:
        yield f"the state is {placement.state}, and should be {expected}"
