"""Plan files of op-level plans: JSON with a version, the joint graph's ops and the order in which they run.

::

    {"schema_version": "1.0", "level": "op", "structure": "5f1c…",
     "ops": [{"name": "mm", "op": "aten.mm.default", "result": "cpu float32[4, 32]"}],
     "forward": ["mm", "gelu"], "backward": ["gelu", "mm_1"], "promise": {…}}

Torch-free until a plan meets a graph.
"""

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

from memplan.contract.document import Document, of_version
from memplan.contract.table import Constant, Table
from memplan.errors import UsageError
from memplan.files.documents import read_json
from memplan.files.read import UnreadableError
from memplan.runtime.checkpoint.mismatch import PlanMismatch
from memplan.runtime.partition.records import VERSION, JointOp, OrderPlan

if TYPE_CHECKING:
    from torch.fx import GraphModule

    from memplan.runtime.partition.partitioner import PlannedPartitioner
    from memplan.runtime.partition.split import Order

PLAN_AGAIN = "plan again: memplan checkpoint-plan TARGET --level op"
COMPILE_THAT = f"compile model and loss as one function with fullgraph=True, or {PLAN_AGAIN}"


def _of_ops(content: Any) -> Any:
    if not isinstance(content, dict) or content.get("level") != "op":
        raise UsageError("this is no op-level plan", hint="memplan.apply takes plans of blocks")
    return of_version(content)


DOCUMENT = Document(
    name="order-file",
    root=OrderPlan,
    tables={OrderPlan: Table(keys={"schema_version": Constant(VERSION), "level": Constant("op")}, before=_of_ops)},
    strict=True,
    called="the plan",
    hint=PLAN_AGAIN,
)
"""A plan as its file holds it."""


def write_order(plan: OrderPlan, path: Path) -> None:
    """Write a plan file.

    Raises:
        UsageError: It cannot be written.
    """
    try:
        path.write_text(json.dumps(DOCUMENT.plain(plan), indent=1, sort_keys=True) + "\n", encoding="utf-8")
    except OSError as error:
        raise UsageError(f"the plan cannot be written: {error}", where=str(path)) from error


def read_order(path: Path) -> OrderPlan:
    """Read a plan file.

    Raises:
        UsageError: It cannot be read or is no op-level plan.
    """
    try:
        content = read_json(path)
    except UnreadableError as error:
        raise UsageError(f"the plan cannot be read: {error}", where=str(path)) from error
    plan: OrderPlan = DOCUMENT.read(content, str(path))
    unknown = {*plan.forward, *plan.backward} - {op.name for op in plan.ops}
    if unknown:
        raise UsageError(f"the plan runs ops that it does not list: {', '.join(sorted(unknown)[:3])}", where=str(path))
    return plan


def load(path: str | Path) -> "PlannedPartitioner":
    """The partitioner that follows a plan file.

    Args:
        path: Written by ``memplan checkpoint-plan TARGET --level op -o FILE``.

    Returns:
        For ``partition_fn`` of ``aot_function``, ``aot_module`` and ``torch._dynamo.backends.common.aot_autograd``.
        Called with another graph than the plan's, it raises ``PlanMismatch``; Inductor's is another one as soon as an
        op of it is decomposed.

    Raises:
        UsageError: The file cannot be read or is no op-level plan.
    """
    from memplan.runtime.partition.partitioner import PlannedPartitioner

    plan = read_order(Path(path))
    return PlannedPartitioner(lambda joint, forward_outputs: order_on(plan, joint, forward_outputs))


def order_on(plan: OrderPlan, joint: "GraphModule", forward_outputs: int) -> "Order":
    """A plan on the graph that it was made for.

    Raises:
        PlanMismatch: It is another graph; the message names the first op that differs.
    """
    from memplan.runtime.partition.split import Order
    from memplan.runtime.partition.structure import described, ops_of, structure

    nodes = ops_of(joint)
    if structure(joint, forward_outputs) != plan.structure:
        raise PlanMismatch(_difference(plan.ops, tuple(map(described, nodes))), hint=COMPILE_THAT)
    # Names depend on who traced the graph; places do not.
    by_name = dict(zip((op.name for op in plan.ops), nodes, strict=True))
    return Order(
        forward=tuple(by_name[name] for name in plan.forward),
        backward=tuple(by_name[name] for name in plan.backward),
    )


def _difference(planned: tuple[JointOp, ...], found: tuple[JointOp, ...]) -> str:
    for number, (mine, theirs) in enumerate(zip(planned, found, strict=False), start=1):
        if (mine.op, mine.result) != (theirs.op, theirs.result):
            return (
                "the plan was made for another joint graph: "
                f"op {number} of it is {mine.op} -> {mine.result}, here it is {theirs.op} -> {theirs.result}"
            )
    if len(planned) != len(found):
        return f"the plan was made for a joint graph of {len(planned)} ops, this one has {len(found)}"
    return "the plan was made for another joint graph: the ops are the same, what they are called on is not"
