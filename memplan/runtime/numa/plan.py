"""Placing ranks, their workers and their pinned memory on the nodes of a machine."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import chain

from memplan.errors import UsageError
from memplan.runtime.numa.memory import Pinned, pin, traffic
from memplan.runtime.numa.placement import Demand, MachinePlacement, RankPlacement, State
from memplan.runtime.numa.records import Core, Device, NumaNode, Topology
from memplan.runtime.numa.system_files import format_list
from memplan.units import Bytes, format_bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class _Seat:
    """A rank on its node."""

    rank: int
    gpu: Device | None
    node: int
    reason: str = ""


def place(topology: Topology, demand: Demand | None = None) -> MachinePlacement:
    """Each rank on its GPU's node, the cores of a node shared out evenly, pinned memory beside them.

    A rank leaves its GPU's node only where that has no CPU left for it: then for the nearest node that has. Cores are
    dealt in runs that share a last-level cache. Memory goes to the rank's own node while there is room, then to the
    nearest.

    Raises:
        UsageError: There are more ranks than CPUs.
    """
    demand = demand or Demand()
    seats = _seats(topology, _rank_count(topology, demand))
    shares = _shares(topology, seats)
    pinned = pin(topology, [seat.node for seat in seats], demand.pinned_bytes)
    ranks = tuple(
        RankPlacement(
            rank=seat.rank, gpu=seat.gpu, node=seat.node, cores=shares[seat.rank],
            workers=_workers(shares[seat.rank], demand.workers), memory_node=lying.home, pinned=lying.parts,
            reason=seat.reason,
        )
        for seat, lying in zip(seats, pinned, strict=True)
    )  # fmt: skip
    step_bytes = demand.step_bytes or demand.pinned_bytes
    short = sum(lying.short_bytes for lying in pinned)
    return MachinePlacement(
        ranks=ranks,
        interleave=tuple(node.index for node in topology.nodes if node.cores and node.available_bytes),
        state=_state(pinned),
        short_bytes=Bytes(short),
        notes=(*core_notes(topology, ranks), *memory_notes(topology, pinned, demand)),
        traffic=traffic(topology, ranks, step_bytes),
        step_bytes=step_bytes,
    )


def _rank_count(topology: Topology, demand: Demand) -> int:
    count = demand.ranks or len(topology.gpus) or sum(1 for node in topology.nodes if node.cores)
    room = len(topology.allowed_cpus)
    if count > room:
        hint = f"at most {room}, or give this process more CPUs"
        raise UsageError(f"{count} ranks do not fit on the {room} CPUs that this process may use", hint=hint)
    return count


def _seats(topology: Topology, count: int) -> list[_Seat]:
    """First everybody whose node has room, then the others: nobody is pushed off their node by a stranger."""
    gpus = topology.gpus
    wanted = [gpus[rank % len(gpus)] if gpus else None for rank in range(count)]
    room = {node.index: len(node.allowed_cpus) for node in topology.nodes}
    seats: dict[int, _Seat] = {}
    for rank, gpu in enumerate(wanted):
        if gpu and gpu.node is not None and room[gpu.node]:
            room[gpu.node] -= 1
            seats[rank] = _Seat(rank=rank, gpu=gpu, node=gpu.node)
    for rank, gpu in enumerate(wanted):
        if rank not in seats:
            node = _nearest(topology, gpu, room, seats.values())
            room[node.index] -= 1
            seats[rank] = _Seat(rank=rank, gpu=gpu, node=node.index, reason=_why(topology, gpu))
    return _in_order([seats[rank] for rank in range(count)])


def _nearest(topology: Topology, gpu: Device | None, room: Mapping[int, int], seats: Iterable[_Seat]) -> NumaNode:
    """The node with room that is nearest to the GPU; among equals the one with most cores for each rank."""
    here = topology.by_index.get(-1 if gpu is None or gpu.node is None else gpu.node)
    seated = [seat.node for seat in seats]

    def order(node: NumaNode) -> tuple[int, float, int]:
        share = (seated.count(node.index) + 1) / len(node.cores)
        return (here.distance(node.index) if here else 0, share, node.index)

    return min((node for node in topology.nodes if room[node.index]), key=order)


def _why(topology: Topology, gpu: Device | None) -> str:
    if gpu is None:
        return ""
    if gpu.node is None:
        return "the system does not say which node its GPU is on"
    if not topology.by_index[gpu.node].cores:
        return f"its GPU's node {gpu.node} has no CPU that this process may use"
    return f"the CPUs of its GPU's node {gpu.node} are all given to other ranks"


def _in_order(seats: list[_Seat]) -> list[_Seat]:
    """Without GPUs all ranks are alike: neighbours sit together."""
    if any(seat.gpu for seat in seats):
        return seats
    nodes = sorted(seat.node for seat in seats)
    return [replace(seat, node=node) for seat, node in zip(seats, nodes, strict=True)]


def _shares(topology: Topology, seats: list[_Seat]) -> dict[int, tuple[Core, ...]]:
    """Rank → its cores: runs as equal as can be, the first ones longer; threads where cores are too few."""
    found: dict[int, tuple[Core, ...]] = {}
    for node in topology.nodes:
        ranks = [seat.rank for seat in seats if seat.node == node.index]
        units = [core.cpus for core in node.cores]
        if len(units) < len(ranks):
            units = [(cpu,) for cpu in node.allowed_cpus]
        size, longer = divmod(len(units), max(1, len(ranks)))
        for number, rank in enumerate(ranks):
            start = number * size + min(number, longer)
            run = set(chain(*units[start : start + size + (number < longer)]))
            found[rank] = tuple(
                replace(core, cpus=tuple(cpu for cpu in core.cpus if cpu in run))
                for core in node.cores
                if not run.isdisjoint(core.cpus)
            )
    return found


def _workers(cores: tuple[Core, ...], count: int) -> tuple[tuple[int, ...], ...]:
    """Each worker the threads of one core, from the last; the first core is the training process's own."""
    own = cores[1:][-count:] if count else ()
    own = own or cores
    return tuple(own[number % len(own)].cpus for number in range(count))


def _state(pinned: Sequence[Pinned]) -> State:
    if any(lying.short_bytes for lying in pinned):
        return "short"
    spilled = any(node != lying.own for lying in pinned for node, _ in lying.parts)
    return "spilled" if spilled else "local"


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
