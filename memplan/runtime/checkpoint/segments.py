"""Segments: several blocks of a chain that run again as one, inside a parent that knows nothing of it.

The parent's forward calls one block after another. The first call runs them all::

    parent calls    layers.0(x)        layers.1(·)       layers.2(·)
    what happens    all three run      passed through    passed through
    it receives     a stand-in         a stand-in        the result

A stand-in refuses every use but to be the next block's first argument, so that a parent which looks at results between
blocks (skip connections, collected hidden states) fails and does not go wrong.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NoReturn

import torch
from torch import nn

from memplan.runtime.checkpoint.mismatch import PlanMismatch
from memplan.runtime.checkpoint.rerun import checkpointed
from memplan.seam.tensors import make_wrapper_subclass

_PLAIN = (int, float, str, bool, type(None), torch.dtype, torch.device)
"""Arguments compared by value; all others must be the same object."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Group:
    """Blocks that run again as one; smaller groups among them first as part of it, then on their own."""

    parts: "tuple[tuple[str, nn.Module] | Group, ...]"
    """Named blocks and groups in the order in which they run."""

    def blocks(self) -> Iterator[tuple[str, nn.Module]]:
        """All blocks in order."""
        for part in self.parts:
            if isinstance(part, Group):
                yield from part.blocks()
            else:
                yield part

    def run(self, *arguments: Any, **keywords: Any) -> Any:
        """Run the blocks, each on the result of the one before, and return the last one's.

        Raises:
            PlanMismatch: A result is no hidden state, or brings along something that the first one's did not.
        """
        result = None
        for part in self.parts:
            name = part.name if isinstance(part, Group) else part[0]
            if result is not None:
                arguments, keywords = _with_hidden(arguments, keywords, _hidden(result, name))
            before = result
            if isinstance(part, Group):
                result = part.checkpointed(arguments, keywords)
            else:
                # Not ``module(…)``, which would only pass through.
                result = part[1]._call_impl(*arguments, **keywords)  # type: ignore[no-untyped-call]  # noqa: SLF001
            if before is not None:
                _check_alike(name, before, result)
        return result

    def checkpointed(self, arguments: Sequence[Any], keywords: Mapping[str, Any]) -> Any:
        """Run the blocks and keep only the first one's arguments."""
        return checkpointed(self.run, arguments, keywords, modules=dict(self.blocks()))

    @property
    def name(self) -> str:
        """``layers.0 … layers.3``."""
        names = [name for name, _ in self.blocks()]
        return f"{names[0]} … {names[-1]}"


class SegmentLoop:
    """An outermost segment, and where the parent's loop stands in it."""

    def __init__(self, group: Group) -> None:
        self._group = group
        self._blocks = tuple(group.blocks())
        self._passing: _Passing | None = None

    def __getstate__(self) -> dict[str, Any]:
        """A copy begins between two forwards."""
        return {**self.__dict__, "_passing": None}

    def call(self, index: int, arguments: Sequence[Any], keywords: Mapping[str, Any]) -> Any:
        """What the parent's call of a block does."""
        if index == 0:
            return self._begin(arguments, keywords)
        if self._passing is None:
            if not torch.is_grad_enabled():
                return self._blocks[index][1]._call_impl(*arguments, **keywords)  # type: ignore[no-untyped-call]  # noqa: SLF001
            self._refuse(index, f"it ran without {self._blocks[0][0]}, which begins its segment")
        return self._pass_through(index, arguments, keywords)

    def forget(self) -> None:
        """The parent's forward failed."""
        self._passing = None

    def check_complete(self) -> None:
        """The parent's forward is over.

        Raises:
            PlanMismatch: It left blocks out.
        """
        passing, self._passing = self._passing, None
        if passing is not None:
            self._refuse(passing.next, "it belongs to a segment, but the model left it out in this forward")

    def _begin(self, arguments: Sequence[Any], keywords: Mapping[str, Any]) -> Any:
        self.check_complete()
        if not torch.is_grad_enabled():
            return self._blocks[0][1]._call_impl(*arguments, **keywords)  # type: ignore[no-untyped-call]  # noqa: SLF001
        result = self._group.checkpointed(arguments, keywords)
        stand_in = _stand_in(self._group.name)
        self._passing = _Passing(
            arguments=tuple(arguments), keywords=dict(keywords), result=result, hidden=stand_in, next=1
        )
        return _with_first(result, stand_in)

    def _pass_through(self, index: int, arguments: Sequence[Any], keywords: Mapping[str, Any]) -> Any:
        passing = self._passing
        if passing is None or index != passing.next:
            self._refuse(index, "it ran out of the order of its segment")
        reason = passing.difference(arguments, keywords)
        if reason:
            self._refuse(index, reason)
        passing.next += 1
        if passing.next < len(self._blocks):
            return _with_first(passing.result, passing.hidden)
        self._passing = None
        return passing.result

    def _refuse(self, index: int, reason: str) -> NoReturn:
        self._passing = None
        name = self._blocks[index][0]
        raise PlanMismatch(
            f"{name} cannot run again as part of {self._group.name}: {reason}",
            where=name,
            hint="take the segment out of the plan; its blocks can be checkpointed one by one",
        )


@dataclass(slots=True, kw_only=True)
class _Passing:
    """A segment that has run, while its parent still calls its blocks."""

    arguments: tuple[Any, ...]
    """Of the first block."""
    keywords: dict[str, Any]
    """Of the first block."""
    result: Any
    """Of the last block."""
    hidden: torch.Tensor
    """What the parent holds in place of the hidden state."""
    next: int
    """The block to be called next."""

    def difference(self, arguments: Sequence[Any], keywords: Mapping[str, Any]) -> str | None:
        """How a later block's arguments differ from the first one's."""
        if len(arguments) != len(self.arguments) or keywords.keys() != self.keywords.keys():
            return "it is called with more or fewer arguments than the first block"
        given, expected = [*arguments, *keywords.values()], [*self.arguments, *(self.keywords[key] for key in keywords)]
        names = [*(f"argument {place}" for place in range(len(arguments))), *keywords]
        slot = 0 if arguments else list(keywords).index(next(iter(self.keywords)))
        if given[slot] is not self.hidden:
            return f"its {names[slot]} is not what the block before it returned"
        for place, name in enumerate(names):
            if place != slot and not _is_same(given[place], expected[place]):
                return f"its {name} is not the first block's"
        return None


class _StandIn(torch.Tensor):
    """A hidden state between two blocks of a segment, which nobody may look at."""

    segment: str
    """Name of the segment."""

    @classmethod
    def __torch_function__(cls, func: Callable[..., Any], _: Any, args: Sequence[Any] = (), __: Any = None) -> NoReturn:
        """Every use of it ends here."""
        segment = next((argument.segment for argument in args if isinstance(argument, cls)), None)
        raise PlanMismatch(
            f"{segment or 'a segment'} cannot run again as one: the model uses a hidden state inside it "
            f"({getattr(func, '__name__', func)})",
            where=segment,
            hint="take the segment out of the plan; its blocks can be checkpointed one by one",
        )

    # PyTorch asks for it before it makes a tensor without a storage.
    __torch_dispatch__ = __torch_function__  # type: ignore[assignment]


def _stand_in(segment: str) -> torch.Tensor:
    stand_in: _StandIn = make_wrapper_subclass(_StandIn, (0,))
    stand_in.segment = segment
    return stand_in


def _hidden(result: Any, name: str) -> torch.Tensor:
    hidden = result[0] if isinstance(result, tuple) and result else result
    if not isinstance(hidden, torch.Tensor):
        raise PlanMismatch(
            f"the block before {name} returns {type(hidden).__name__}; in a segment it must return a tensor, or a "
            "tuple that begins with one",
            where=name,
        )
    return hidden


def _with_hidden(
    arguments: Sequence[Any], keywords: Mapping[str, Any], hidden: torch.Tensor
) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """Arguments with another hidden state: the first one, or the first keyword."""
    if arguments:
        return (hidden, *arguments[1:]), dict(keywords)
    return (), {**keywords, next(iter(keywords)): hidden}


def _with_first(result: Any, first: torch.Tensor) -> Any:
    return (first, *result[1:]) if isinstance(result, tuple) else first


def _check_alike(name: str, before: Any, result: Any) -> None:
    """Beside the hidden state, every block must return the same objects: the parent sees the last one's."""
    one, other = (value[1:] if isinstance(value, tuple) else None for value in (before, result))
    if one is None and other is None:
        return
    if one is None or other is None or len(one) != len(other) or not all(map(_is_same, one, other)):
        raise PlanMismatch(
            f"{name} returns something of its own beside the hidden state, which a segment cannot pass on", where=name
        )


def _is_same(one: Any, other: Any) -> bool:
    if one is other:
        return True
    return isinstance(one, _PLAIN) and type(one) is type(other) and bool(one == other)
