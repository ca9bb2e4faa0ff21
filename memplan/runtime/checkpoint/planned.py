"""What stands in place of a planned module's ``forward``."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager
from types import MethodType
from typing import Any

import torch
from torch import nn

from memplan.runtime.checkpoint.host import Host
from memplan.runtime.checkpoint.mismatch import PlanMismatch
from memplan.runtime.checkpoint.offload import BackwardOrder, offloading
from memplan.runtime.checkpoint.records import Action, BlockPlan
from memplan.runtime.checkpoint.rerun import checkpointed
from memplan.runtime.checkpoint.selective import selectively_checkpointed

_OWN_SWITCHES = ("gradient_checkpointing", "grad_checkpointing")
"""Attributes of modules of transformers and diffusers; of timm."""

Recomputing = Callable[[nn.Module], AbstractContextManager[Any]]
"""Module → context of its second run, the one in backward."""


class PlannedForward:
    """The forward of a module with a part in a plan. It travels with its module into copies and pickles.

    The module's own hooks stay outside, and those of the modules inside it run in both runs. Those who offload need a
    host, and an order if their tensors are fetched ahead. ``strict``: every planned op call must come, also on the CPU.
    """

    def __init__(
        self,
        module: nn.Module,
        block: BlockPlan,
        recomputing: Recomputing,
        host: Host | None,
        order: BackwardOrder | None = None,
        *,
        strict: bool = True,
    ) -> None:
        self._module = module
        self.block = block
        self.recomputing = recomputing
        self.host = host
        self.order = order
        self.strict = strict
        self._own = module.__dict__.get("forward")
        module.__dict__["forward"] = self

    @property
    def __wrapped__(self) -> Callable[..., Any]:
        """The module's own forward, which ``inspect.signature`` looks for here."""
        own: Callable[..., Any] = self._own or MethodType(type(self._module).forward, self._module)
        return own

    def __call__(self, *arguments: Any, **keywords: Any) -> Any:
        """Run the forward as planned."""
        forward, block = self.__wrapped__, self.block
        if block.action is Action.KEEP or not torch.is_grad_enabled():
            return forward(*arguments, **keywords)
        # A trainer turns it on when training begins.
        refuse_own_checkpointing(block.module, self._module)
        if block.action is Action.OFFLOAD and self.host is not None:
            with offloading(self._module, self.host, self.order):
                return forward(*arguments, **keywords)
        return self._rerun(forward, arguments, keywords)

    def remove(self) -> None:
        """Give the module its own forward back."""
        if self._own is None:
            del self._module.__dict__["forward"]
        else:
            self._module.__dict__["forward"] = self._own

    def _rerun(self, forward: Callable[..., Any], arguments: Sequence[Any], keywords: dict[str, Any]) -> Any:
        module, block = self._module, self.block
        again = [lambda: self.recomputing(module)]
        if block.action is Action.CHECKPOINT:
            return checkpointed(forward, arguments, keywords, modules={block.module: module}, again=again)
        return selectively_checkpointed(
            forward,
            arguments,
            keywords,
            module=module,
            name=block.module,
            saved=block.saved,
            strict=self.strict,
            again=again,
        )


def refuse_own_checkpointing(name: str, module: nn.Module) -> None:
    """Raise an error if a library's own checkpointing is on in a module, which would run again inside the plan's.

    Raises:
        PlanMismatch: It is.
    """
    switch = next((switch for switch in _OWN_SWITCHES if getattr(module, switch, False) is True), None)
    if switch is not None:
        raise PlanMismatch(
            f"{name or type(module).__name__} does its own checkpointing ({switch} is on), beside the plan's",
            where=name or None,
            hint="turn it off: model.gradient_checkpointing_disable(), or the library's own call",
        )


def planned_forward(module: nn.Module) -> PlannedForward | None:
    """A module's planned forward, if it has one."""
    forward = module.__dict__.get("forward")
    return forward if isinstance(forward, PlannedForward) else None


def planned_forwards(model: nn.Module) -> Iterator[PlannedForward]:
    """The planned forwards of a model's modules."""
    return (forward for module in model.modules() if (forward := planned_forward(module)) is not None)


def put_blocks(
    model: nn.Module,
    blocks: Iterable[BlockPlan],
    recomputing: Recomputing,
    host: Host | None,
    *,
    prefetch: bool = False,
    strict: bool = True,
) -> None:
    """Let blocks do what they are planned to do.

    Blocks have exact names, each module once. With ``prefetch`` those of the next block are fetched while one runs
    backward; ``strict`` as of ``PlannedForward``.
    """
    order = BackwardOrder() if prefetch else None
    for block in blocks:
        PlannedForward(model.get_submodule(block.module), block, recomputing, host, order, strict=strict)
