"""A networkx view of a trace: ops and storages, who writes and who reads."""

from typing import TYPE_CHECKING

from memplan.lifetime.records import Lifetimes

if TYPE_CHECKING:
    import networkx as nx


def to_networkx(lifetimes: Lifetimes) -> "nx.DiGraph[tuple[str, int]]":
    """The bipartite graph of ops and device storages.

    Returns:
        Nodes ``("op", index)`` with the op's record as ``op``, and ``("storage", id)`` with the buffer's as ``buffer``;
        an edge from a storage to every op that reads it, and from every op to each storage that it writes.
    """
    import networkx as nx

    graph: nx.DiGraph[tuple[str, int]] = nx.DiGraph()
    for identity, buffer in lifetimes.buffers.items():
        graph.add_node(("storage", int(identity)), buffer=buffer)
    for op in lifetimes.trace.ops:
        node = ("op", int(op.index))
        graph.add_node(node, op=op)
        graph.add_edges_from((("storage", int(read)), node) for read in op.reads if read in lifetimes.buffers)
        graph.add_edges_from((node, ("storage", int(write))) for write in op.writes if write in lifetimes.buffers)
    return graph
