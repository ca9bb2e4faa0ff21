"""Which attention ops of a step are causal, as the recorded calls say."""

from collections.abc import Iterable

from memplan.tracing.call_graph import CallNode
from memplan.tracing.records import Op
from memplan.units import OpIndex

ARGUMENT = "is_causal"


def causal_ops(nodes: Iterable[CallNode[Op]]) -> frozenset[OpIndex]:
    """Return the attention ops among the calls of a step that were told to be causal."""
    return frozenset(node.op.index for node in nodes if node.op is not None and _is_causal(node, node.op.name))


def _is_causal(node: CallNode[Op], name: str) -> bool:
    if "attention" not in name:
        return False
    names = [argument.name for argument in node.target._schema.arguments]
    if ARGUMENT not in names:
        return False
    place = names.index(ARGUMENT)
    return bool(node.args[place] if place < len(node.args) else node.kwargs.get(ARGUMENT, False))
