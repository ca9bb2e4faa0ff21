"""The cost of running one op of a joint graph."""

from collections.abc import Callable
from typing import TYPE_CHECKING

from memplan.lifetime.roofline import UNKNOWN_BANDWIDTH, UNKNOWN_FLOPS, Roofline
from memplan.plan.checkpoint.ops.capture.values import schema_of, storages

if TYPE_CHECKING:
    from torch.fx import Node

Cost = Callable[["Node"], float]
"""Of one op, in a unit of its own."""

ASSUMED_RATES = Roofline(flops=UNKNOWN_FLOPS, bandwidth=UNKNOWN_BANDWIDTH, assumed=True)
"""Where no device is named."""
_COUNTED_AS = {
    "aten::_scaled_dot_product_flash_attention_for_cpu": "_scaled_dot_product_flash_attention",
    "aten::_scaled_dot_product_flash_attention_for_cpu_backward": "_scaled_dot_product_flash_attention_backward",
}
"""Kernels for which torch's counter has no formula (torch/utils/flop_counter.py, 2.13), and those with the same
arithmetic on the same leading arguments."""


def flops(node: "Node") -> float:
    """Operations of matrix products, convolutions and attention, as torch counts them; the node carries fake values."""
    import torch
    from torch.fx import Node

    from memplan.seam.pytree import tree_map_only
    from memplan.tracing.calls import flops_formula

    schema = schema_of(node)
    if schema is None:
        return 0.0
    same = _COUNTED_AS.get(schema.name)
    count = flops_formula(getattr(torch.ops.aten, same).default if same else node.target)  # type: ignore[arg-type]
    if count is None:
        return 0.0
    args, kwargs = tree_map_only(Node, lambda each: each.meta.get("val"), (node.args, node.kwargs))
    return float(count(*args, **kwargs, out_val=node.meta.get("val")))


def bytes_moved(node: "Node") -> int:
    """Bytes of all storages that an op reads and writes, each once."""
    found = dict(storages(node))
    for source in node.all_input_nodes:
        found |= storages(source)
    return sum(found.values())


def roofline_seconds(rates: Roofline) -> Cost:
    """Return the cost of an op in seconds: the slower of arithmetic and traffic."""
    return lambda node: rates.slower(flops(node), bytes_moved(node))
