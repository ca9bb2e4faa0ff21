"""The JSON of ``memplan graph``: the lifetime graph as networkx reads it (node-link), with figures of the fx graph."""

from typing import NamedTuple

from memplan.contract.document import Document, head
from memplan.contract.table import Table
from memplan.lifetime.graph import TensorLifetime, drawn_edges
from memplan.measure.graphs import JobGraphs


class LifetimeEdge(NamedTuple):
    """Two tensors that are alive at the same time."""

    source: int
    """The older one's id."""
    target: int
    """The younger one's."""


def _edges(graph: JobGraphs) -> tuple[LifetimeEdge, ...]:
    """Every two that meet, once."""
    return tuple(LifetimeEdge(*edge) for edge in drawn_edges(graph.tensors))


def _false(_: JobGraphs) -> bool:
    """Neither directed nor with several edges between two: what node-link asks for."""
    return False


DOCUMENT = Document(
    name="graph",
    root=JobGraphs,
    tables={
        JobGraphs: Table(
            keys={
                **head("graph"),
                "target": "target",
                "device": "device",
                "options": "options",
                "ops": "ops_by_phase",
                "steps": "steps",
                "directed": _false,
                "multigraph": _false,
                "nodes": "tensors",
                "edges": _edges,
                "left_out": "left_out",
                "peak": {"op": "peak_op", "requested_bytes": "peak_bytes"},
                "operations": "operations",
                "ridge": "ridge",
                "assumptions": "assumptions",
                "versions": {"memplan": "memplan_version"},
            },
            rest=False,
        ),
        TensorLifetime: Table(keys={"bytes": "nbytes"}, omit=("nbytes",)),
    },
)
render = DOCUMENT.render
