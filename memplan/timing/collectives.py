"""The time of a collective: rings with a latency per step and a bandwidth, inside a node or between nodes.

The number of ranks in an all-gather or a reduce-scatter is read off its sizes where its storages are the message; of
others it is the job's. DeepSpeed gathers out of one buffer of all shards: there what is moved tells the message.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Literal

from memplan.hardware.nodes import Node
from memplan.job.parallel import Parallel
from memplan.tracing.records import Op, Storage

Kind = Literal["gather", "scatter", "reduce", "exchange", "send"]

_NAMES: Mapping[str, Kind] = {
    "all_gather": "gather",
    "allgather": "gather",
    "reduce_scatter": "scatter",
    "all_reduce": "reduce",
    "allreduce": "reduce",
    "all_to_all": "exchange",
    "alltoall": "exchange",
    "broadcast": "send",
    "send": "send",
    "recv": "send",
}
"""Part of an op's name → what it is; the first that is found counts."""
_SHARED: Mapping[Kind, Callable[[int], float]] = {
    "gather": lambda ranks: 2 + 1 / ranks,
    "scatter": lambda ranks: 1 + 2 / ranks,
}
"""Kinds of which each rank has a share → bytes that an op in place moves for each of the message: what it writes is
among its arguments, and so counts as read, too."""
_LIBRARIES = ("c10d", "_c10d_functional")
"""Namespaces of collectives; ``fsdp`` has only the copies around them, which are kernels."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Collective:
    """One collective, as its op tells."""

    kind: Kind
    """What it does."""
    nbytes: int
    """The whole message: what an all-gather has in the end, a reduce-scatter in the beginning."""
    ranks: int
    """Ranks that take part."""
    spread: int
    """Distance between neighbouring ranks of the group: 1 where they are numbered one after another."""
    blocking: bool
    """Does the next op need its result at once? FSDP and DDP let theirs run beside the computation."""


def collective_of(op: Op, storages: tuple[Storage, ...], parallel: Parallel) -> Collective | None:
    """Return the collective that an op is; None if it is none."""
    library, _, name = op.name.partition(".")
    if library not in _LIBRARIES:
        return None
    kind = next((kind for part, kind in _NAMES.items() if part in name), None)
    if kind is None:
        return None
    sizes = [storages[each].nbytes for each in {*op.reads, *op.writes}]
    whole = max(sizes, default=0)
    least = min((size for size in sizes if size), default=whole)
    of_tensor = library == "_c10d_functional" and parallel.tensor > 1
    told = round(whole / least) if kind in _SHARED and least else 1
    ranks = told if 1 < told <= parallel.ranks else _ranks(kind, parallel, of_tensor=of_tensor)
    is_whole = kind not in _SHARED or op.bytes_moved in (0, whole + least)
    return Collective(
        kind=kind,
        nbytes=whole if is_whole else round(op.bytes_moved / _SHARED[kind](ranks)),
        ranks=ranks,
        spread=1 if of_tensor else parallel.tensor,
        blocking=of_tensor or kind in ("exchange", "send"),
    )


def _ranks(kind: Kind, parallel: Parallel, *, of_tensor: bool) -> int:
    if kind == "send":
        return 2
    if of_tensor:
        return parallel.tensor
    # What shards leave to reduce is reduced among their copies.
    among_copies = kind not in _SHARED and parallel.replicas > 1
    return parallel.replicas if among_copies else parallel.shards * parallel.context


def seconds(collective: Collective, node: Node) -> float:
    """Time of a collective on an idle network."""
    ranks = collective.ranks
    if ranks < 2 or not collective.nbytes:
        return 0.0
    per_node = max(1, node.gpus // collective.spread)
    within = ranks <= per_node
    # Rings of a group with several ranks in a node use the ports of all of them.
    between = min(node.inside_bandwidth, per_node * node.network_bandwidth)
    bandwidth = node.inside_bandwidth if within else between
    latency = node.inside_latency if within else node.between_latency
    if collective.kind == "send":
        return latency + collective.nbytes / (node.inside_bandwidth if within else node.network_bandwidth)
    rounds = 2 if collective.kind == "reduce" else 1
    if collective.kind == "exchange" and not within:
        bandwidth = node.network_bandwidth
    return rounds * ((ranks - 1) * latency + (ranks - 1) / ranks * collective.nbytes / bandwidth)
