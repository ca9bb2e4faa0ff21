"""Which attention ops are causal: their kernels leave out the half of the work that torch's count has in it.

FlashAttention skips blocks above the diagonal and counts causal FLOPs by half (Dao 2023, arXiv:2307.08691, section
4.1), as do the rates of ``fractions.toml``; ``torch.utils.flop_counter`` counts the whole square.
"""

from typing import Any

from memplan.tracing.records import Trace
from memplan.units import OpIndex

ARGUMENT = "is_causal"
SHARE = 0.5


def causal_ops(trace: Trace) -> frozenset[OpIndex]:
    """Attention ops of a trace that were told to be causal; none where it has no graph.

    Args:
        trace: With its graph.
    """
    nodes = trace.graph.nodes if trace.graph is not None else ()
    return frozenset(node.op.index for node in nodes if node.op is not None and _is_causal(node))


def _is_causal(node: Any) -> bool:
    if "attention" not in node.op.name:
        return False
    names = [argument.name for argument in node.target._schema.arguments]  # noqa: SLF001 - torch has no other name
    if ARGUMENT not in names:
        return False
    place = names.index(ARGUMENT)
    return bool(node.args[place] if place < len(node.args) else node.kwargs.get(ARGUMENT, False))
