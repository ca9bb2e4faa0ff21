"""The tensor-lifetime graph: device storages as nodes, an edge between two that are alive at the same time.

    storage   ├────── a ──────┤
                   ├─ b ─┤          a ── b    (a and c never meet: they may share bytes)
                                ├ c ┤

Kept as intervals; edges, of which there may be as many as pairs, are made when somebody asks for them.
"""

import heapq
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import TYPE_CHECKING

from memplan.errors import UsageError
from memplan.lifetime.records import Category, Lifetimes
from memplan.units import Bytes, OpIndex, StorageId

if TYPE_CHECKING:
    import networkx as nx

SET_UP = OpIndex(-1)
"""Where events stand that come before the first op."""
MOST_EDGES = 1_000_000
"""Of one exported graph; networkx takes about a kilobyte for each with its attributes."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TensorLifetime:
    """One node: a device storage, from the op that allocates it to the op before which it is gone."""

    id: StorageId
    """In its trace."""
    name: str
    """Parameter, buffer or input; else the op that made it."""
    nbytes: Bytes
    """Requested size."""
    category: Category
    """What it is for."""
    module: str
    """Owner by module path."""
    source: str
    """Owner by source line."""
    stream: int
    """CUDA stream that it was allocated on."""
    start: OpIndex
    """Op that allocates it; -1: set-up."""
    end: OpIndex
    """First op at which it is gone; 0 where set-up itself frees it."""
    born: str
    """Node of the fx graph that allocates it; empty for what set-up made."""
    last_read: str
    """Node of the fx graph that reads it last, and so keeps it alive until then; empty if none does."""


def lifetimes_of(lifetimes: Lifetimes, nodes: Sequence[str] | None = None) -> tuple[TensorLifetime, ...]:
    """Return a node for each device storage that has bytes, in order of birth.

    ``nodes`` has the node of the fx graph for each op; None: ops go by their index.
    """
    ops = lifetimes.trace.ops
    named = nodes if nodes is not None else [f"op_{op.index}" for op in ops]
    readers = {read: int(op.index) for op in ops for read in op.reads}
    set_up = {(event.storage, event.action) for event in lifetimes.trace.events if event.op == SET_UP}
    found = []
    for identity, buffer in lifetimes.buffers.items():
        if not buffer.nbytes:
            continue
        storage, reader = lifetimes.trace.storages[identity], readers.get(identity)
        start = SET_UP if (identity, "alloc") in set_up else buffer.start
        made_by_op = not storage.name and 0 <= start < len(ops)
        found.append(
            TensorLifetime(
                id=identity,
                name=storage.name or (ops[start].name if made_by_op else ""),
                nbytes=buffer.nbytes,
                category=buffer.category,
                module=buffer.module,
                source=buffer.source,
                stream=storage.stream,
                start=start,
                end=OpIndex(0) if (identity, "free") in set_up else buffer.end,
                born=named[start] if made_by_op else "",
                last_read="" if reader is None else named[reader],
            )
        )
    return tuple(found)


def meetings(nodes: Iterable[TensorLifetime]) -> Iterator[tuple[StorageId, StorageId]]:
    """Yield every two storages that are alive at the same time, once, by one pass through time."""
    alive: list[tuple[int, StorageId]] = []
    for node in sorted(nodes, key=lambda each: (each.start, each.id)):
        while alive and alive[0][0] <= node.start:
            heapq.heappop(alive)
        yield from ((other, node.id) for _, other in alive)
        heapq.heappush(alive, (node.end, node.id))


def count_meetings(nodes: Sequence[TensorLifetime]) -> int:
    """Return how many edges there are, without making them."""
    ends: list[int] = []
    count = 0
    for node in sorted(nodes, key=lambda each: each.start):
        while ends and ends[0] <= node.start:
            heapq.heappop(ends)
        count += len(ends)
        heapq.heappush(ends, node.end)
    return count


def drawn_edges(nodes: Sequence[TensorLifetime]) -> list[tuple[StorageId, StorageId]]:
    """Return all edges, if an export can hold them.

    Raises:
        UsageError: There are more than ``MOST_EDGES``.
    """
    edges = list(islice(meetings(nodes), MOST_EDGES + 1))
    if len(edges) > MOST_EDGES:
        what = f"{count_meetings(nodes):,} pairs of {len(nodes):,} tensors meet; an export holds {MOST_EDGES:,}"
        raise UsageError(what, hint="--largest N keeps the N tensors with the most bytes")
    return edges


def to_networkx(nodes: Sequence[TensorLifetime]) -> "nx.Graph[int]":
    """Return the graph with networkx, all fields as attributes.

    Raises:
        UsageError: It has more than ``MOST_EDGES`` edges.
    """
    import networkx as nx

    graph: nx.Graph[int] = nx.Graph()
    for node in nodes:
        graph.add_node(
            int(node.id),
            name=node.name,
            bytes=int(node.nbytes),
            category=str(node.category),
            module=node.module,
            source=node.source,
            stream=node.stream,
            start=int(node.start),
            end=int(node.end),
            born=node.born,
            last_read=node.last_read,
        )
    graph.add_edges_from((int(one), int(other)) for one, other in drawn_edges(nodes))
    return graph
