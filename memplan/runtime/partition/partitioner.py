"""What AOTAutograd and ``torch.compile`` call to cut the joint graph."""

from collections.abc import Callable
from typing import Any

from torch.fx import GraphModule

from memplan.errors import UsageError
from memplan.runtime.checkpoint.mismatch import PlanMismatch
from memplan.runtime.partition.split import Order, split
from memplan.seam.compiler import CustomPartitionerFn

# Before torch 2.8 Inductor takes no partitioner; ``aot_function`` takes any callable.
_Partitioner: type = CustomPartitionerFn or object

OrderOf = Callable[[GraphModule, int], Order]
"""Takes a joint graph and how many of its results are forward's."""


OF_EAGER_OPS = (
    "order files are made for eager ops, which Inductor decomposes first: compile with aot_autograd(fw_compiler=..., "
    "partition_fn=...), or plan while Inductor compiles: "
    "memplan.plan.checkpoint.ops.partitioner.budget_partitioner(bytes)"
)


class PlannedPartitioner(_Partitioner):  # type: ignore[misc]
    """Cuts every joint graph that it is given as a planner says.

    For ``torch.compile``: ``torch._inductor.config.custom_partitioner_fn``; for ``aot_function``, ``aot_module`` and
    ``torch._dynamo.backends.common.aot_autograd``: ``partition_fn``.

    The planner is called once for each graph.
    """

    def __init__(self, order_of: OrderOf) -> None:
        self._order_of = order_of

    def __call__(
        self, gm: GraphModule, joint_inputs: object, *, num_fwd_outputs: int, **options: Any
    ) -> tuple[GraphModule, GraphModule]:
        """Cut one graph.

        Args:
            gm: The joint graph.
            joint_inputs: Not read.
            num_fwd_outputs: How many of its results are forward's.
            options: What torch says beyond that; only ``compiler`` is read.

        Returns:
            Forward and backward.

        Raises:
            UsageError: The graph has what a schedule cannot carry (dynamic shapes, state of backward hooks), or is not
                the one that was planned.
        """
        del joint_inputs
        gm.graph.eliminate_dead_code()
        check(gm)
        try:
            order = self._order_of(gm, num_fwd_outputs)
        except PlanMismatch as mismatch:
            if options.get("compiler") != "inductor":
                raise
            raise PlanMismatch(f"Inductor's graph is not the plan's: {mismatch.what}", hint=OF_EAGER_OPS) from mismatch
        return split(gm, order, num_fwd_outputs)

    def uuid(self) -> None:
        """Keep compiled code out of caches: it depends on the plan."""


def check(joint: GraphModule) -> None:
    """Refuse what a schedule cannot carry.

    Raises:
        UsageError: It has dynamic shapes or state of compiled autograd.
    """
    import torch
    from torch.fx.experimental.proxy_tensor import py_sym_types

    for node in joint.graph.nodes:
        value = node.meta.get("val")
        sizes = value.shape if isinstance(value, torch.Tensor) else (value,)
        if any(isinstance(size, py_sym_types) for size in sizes):
            raise UsageError(
                f"{node.name} has a size that is not known before it runs, and a schedule needs every size",
                hint="torch.compile(..., dynamic=False)",
            )
        if type(value).__name__ == "BackwardState":
            raise UsageError("compiled autograd's hooks cannot be planned", hint="compile without compiled autograd")
