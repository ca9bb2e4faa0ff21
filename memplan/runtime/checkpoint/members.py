"""Segments put onto a model: their blocks, and the parents whose forwards call them."""

from collections.abc import Sequence
from contextlib import nullcontext
from typing import Any

import torch
from torch import nn

from memplan.runtime.checkpoint.planned import PlannedForward, planned_forward
from memplan.runtime.checkpoint.records import Action, BlockPlan, Segment
from memplan.runtime.checkpoint.segments import Group, SegmentLoop


def put_segments(model: nn.Module, segments: Sequence[Segment]) -> None:
    """Let segments, nested or apart, of blocks that have their planned forwards run again as one."""
    for group in _outermost(model, [segment.modules for segment in segments]):
        chain = SegmentLoop(group)
        for index, (name, module) in enumerate(group.blocks()):
            _planned(name, module).join(chain, index)
        names = [name for name, _ in group.blocks()]
        parent = _parent(model, names)
        if parent is not None:
            _planned("", parent).watch(chain)


class Member(PlannedForward):
    """The forward of a module that is part of segments, as one of the blocks or as a parent of the blocks."""

    _place: tuple[SegmentLoop, int] | None = None
    _chains: tuple[SegmentLoop, ...] = ()

    # Under ``torch.compile`` it runs eagerly, and with it all of a parent: a stand-in is no input of a graph.
    @torch.compiler.disable  # type: ignore[untyped-decorator]
    def __call__(self, *arguments: Any, **keywords: Any) -> Any:
        """Run the forward; a parent's must call all blocks of its segments."""
        try:
            result = super().__call__(*arguments, **keywords)
        except BaseException:
            for chain in self._chains:
                chain.forget()
            raise
        for chain in self._chains:
            chain.check_complete()
        return result

    def __setstate__(self, state: dict[str, Any]) -> None:
        """Put a copy of the module back into its segment, which a module does not copy."""
        self.__dict__.update(state)
        if self._place is not None:
            self.join(*self._place)

    def join(self, chain: SegmentLoop, index: int) -> None:
        """Let calls of the module go to a segment."""
        self._place = chain, index
        # What ``nn.Module.compile`` sets. Calls are taken, not ``forward``: hooks (FSDP's gather parameters) must run
        # where the block does, in the second run as well, and not where the parent's call passes through.
        self._module.__dict__["_compiled_call_impl"] = _SegmentCall(chain, index)

    def watch(self, chain: SegmentLoop) -> None:
        """Be the parent whose forward calls a segment's blocks."""
        self._chains += (chain,)

    def remove(self) -> None:
        """Give the module its own forward back."""
        if self._place is not None:
            self._module.__dict__.pop("_compiled_call_impl", None)
        super().remove()


class _SegmentCall:
    """A call of a block that stands in a segment."""

    def __init__(self, chain: SegmentLoop, index: int) -> None:
        self._chain = chain
        self._index = index

    def __call__(self, *arguments: Any, **keywords: Any) -> Any:
        return self._chain.call(self._index, arguments, keywords)


def _planned(name: str, module: nn.Module) -> Member:
    """The module's planned forward as a member's; without a plan of its own it keeps."""
    present = planned_forward(module)
    if isinstance(present, Member):
        return present
    if present is None:
        return Member(module, BlockPlan(module=name, action=Action.KEEP), nullcontext, None)
    present.remove()
    return Member(module, present.block, present.recomputing, present.host)


def _outermost(model: nn.Module, segments: Sequence[tuple[str, ...]]) -> list[Group]:
    outermost = [names for names in segments if not any(set(names) < set(other) for other in segments)]
    return [_group(model, names, segments) for names in outermost]


def _group(model: nn.Module, names: tuple[str, ...], segments: Sequence[tuple[str, ...]]) -> Group:
    """A segment with those inside it as groups of their own."""
    inside = [other for other in segments if set(other) < set(names)]
    parts: list[tuple[str, nn.Module] | Group] = []
    place = 0
    while place < len(names):
        begun = [other for other in inside if other[0] == names[place]]
        if begun:
            longest = max(begun, key=len)
            parts.append(_group(model, longest, inside))
            place += len(longest)
        else:
            parts.append((names[place], model.get_submodule(names[place])))
            place += 1
    return Group(parts=tuple(parts))


def _parent(model: nn.Module, names: Sequence[str]) -> nn.Module | None:
    """The innermost module around all of them that is called (a ``ModuleList`` is not)."""
    around = names[0]
    while around:
        around = around.rpartition(".")[0]
        holds_all = all(name.startswith(f"{around}." if around else "") for name in names)
        module = model.get_submodule(around)
        if holds_all and type(module).forward is not nn.Module.forward:
            return module
    return None
