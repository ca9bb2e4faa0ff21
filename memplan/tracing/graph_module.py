"""A recorded step as a ``torch.fx.GraphModule``: what other people's passes read, and an interpreter runs again."""

import io
import re
from collections.abc import Iterator
from typing import TYPE_CHECKING

from memplan.errors import EstimateError
from memplan.tracing.records import Trace

if TYPE_CHECKING:
    import torch.fx

_ASSIGNED = re.compile(r"\s+(\w+) = ")


def graph_module(trace: Trace) -> "torch.fx.GraphModule":
    """Return the calls of all traced steps, in the order in which they ran, as a module that torch.fx can run.

    Placeholders are the model's parameters and buffers, by name with ``_`` for ``.``, and the batches of each step; ops
    that write in place do so here, too, and what is made of nothing lies where the first placeholder does. A node's
    ``meta["op"]`` is its record (``memplan.tracing.records.Op``).

    Raises:
        EstimateError: The trace was kept without its graph.
    """
    import torch
    import torch.fx

    if trace.graph is None:
        raise EstimateError("this trace has no graph: it was read from the cache")
    root = torch.nn.Module()
    for name, constant in trace.constants.items():
        root.register_buffer(name, constant, persistent=True)
    graph = trace.graph.fx()
    if not any(node.op == "output" for node in graph.nodes):
        graph.output(())
    _follow_inputs(graph)
    return torch.fx.GraphModule(root, graph, class_name="Step")


def _follow_inputs(graph: "torch.fx.Graph") -> None:
    """Make what is created from nothing (``empty``, ``randn``) ask the first input for its device.

    A saved ``GraphModule`` is traced again from its code when it is loaded. A call without any node among its arguments
    would be made then, once, and with it the random draws into its result.
    """
    inputs = [node for node in graph.nodes if node.op == "placeholder"]
    created = [node for node in graph.nodes if node.op == "call_function" and _is_from_nothing(node)]
    if not inputs or not created:
        return
    with graph.inserting_before(created[0]):
        device = graph.call_function(getattr, (inputs[0], "device"))
    for node in created:
        node.kwargs = {**node.kwargs, "device": device}


def _is_from_nothing(node: "torch.fx.Node") -> bool:
    schema = getattr(node.target, "_schema", None)
    return not node.all_input_nodes and schema is not None and any(each.name == "device" for each in schema.arguments)


def node_names(trace: Trace, module: "torch.fx.GraphModule") -> tuple[str, ...]:
    """Return for each op of a trace the name of its node; empty where it has none of its own."""
    names = [""] * len(trace.ops)
    for node in module.graph.nodes:
        if "op" in node.meta:
            names[node.meta["op"].index] = node.name
    return tuple(names)


def readable(module: "torch.fx.GraphModule") -> str:
    """Return the module's code with phase, module and source line beside each call."""
    records = {node.name: node.meta["op"] for node in module.graph.nodes if "op" in node.meta}
    return "\n".join(_annotated(module.code, records)) + "\n"


def _annotated(code: str, records: dict[str, object]) -> Iterator[str]:
    for line in code.strip().splitlines():
        assigned = _ASSIGNED.match(line)
        op = records.get(assigned[1]) if assigned else None
        words = [getattr(op, field) for field in ("phase", "module", "source")] if op is not None else []
        yield f"{line}  # {' · '.join(filter(None, words))}" if any(words) else line


def saved(module: "torch.fx.GraphModule") -> bytes:
    """Return what ``torch.load(file, weights_only=False)`` makes the module of again; nodes lose their ``meta``."""
    import torch

    content = io.BytesIO()
    torch.save(module, content)
    return content.getvalue()
