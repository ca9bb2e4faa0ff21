"""The op that runs now, as the recorder passes it from hand to hand."""

from typing import TYPE_CHECKING, Any

from memplan.tracing.calls import Operator

if TYPE_CHECKING:
    from memplan.tracing.attribution import OpOwner
    from memplan.tracing.call_graph import CallNode
    from memplan.tracing.records import Op, Phase, Place, Role
    from memplan.tracing.refs import Ref
    from memplan.units import StorageId


class Running:
    """One op call and what is found out about it on the way."""

    __slots__ = (
        "args", "func", "in_backward", "kwargs", "node", "operator", "overwritten", "owner", "phase", "place", "reads",
        "role",
    )  # fmt: skip

    def __init__(self, func: Any, operator: Operator, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        self.func, self.operator, self.args, self.kwargs = func, operator, args, kwargs
        self.reads: list[Ref] = []
        """References of its tensor arguments."""
        self.owner: OpOwner
        self.phase: Phase
        self.in_backward = False
        """Does autograd's engine run it?"""
        self.node: CallNode[Op]
        self.place: Place = "device"
        """Where its new storages lie."""
        self.role: Role = "intermediate"
        """What its new storages are."""
        self.overwritten: StorageId | None = None
        """The allocation that eager PyTorch would write its result into."""
