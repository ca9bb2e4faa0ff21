"""The lifetime graph for Graphviz, and for whatever reads GraphML."""

import io

from memplan.lifetime.graph import TensorLifetime, drawn_edges, to_networkx
from memplan.measure.graphs import JobGraphs
from memplan.text import clean
from memplan.units import format_bytes


def render(graph: JobGraphs) -> str:
    """Write the graph in Graphviz's DOT language.

    Raises:
        UsageError: It has more edges than an export holds.
    """
    nodes = (f"  {each.id} [label={_quoted(_label(each))}, bytes={each.nbytes}];" for each in graph.tensors)
    edges = (f"  {one} -- {other};" for one, other in drawn_edges(graph.tensors))
    return "\n".join([f"graph {_quoted(graph.target)} {{", "  node [shape=box];", *nodes, *edges, "}"]) + "\n"


def graphml(graph: JobGraphs) -> str:
    """Write the graph as GraphML, all fields as attributes.

    Raises:
        UsageError: It has more edges than an export holds.
    """
    import networkx as nx

    content = io.BytesIO()
    nx.write_graphml(to_networkx(graph.tensors), content)
    return content.getvalue().decode("utf-8")


def _label(tensor: TensorLifetime) -> str:
    return f"{tensor.born or tensor.name}\n{format_bytes(tensor.nbytes)} {tensor.category}\n{tensor.module}"


def _quoted(text: str) -> str:
    lines = (clean(line).replace("\\", "\\\\").replace('"', '\\"') for line in text.split("\n"))
    return '"' + "\\n".join(lines) + '"'
