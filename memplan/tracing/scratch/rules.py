"""What a scratch rule is: a function from one op call to the allocations its kernel makes on the side."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, NamedTuple

import torch

from memplan.tracing.nested import Path
from memplan.tracing.records import DeviceTraits


class Scratch(NamedTuple):
    """One allocation or free that a kernel makes inside its op."""

    action: Literal["alloc", "free", "keep"]
    """``keep`` allocates for good (a library workspace); the others come in pairs."""
    key: str
    """Names the allocation within the op; for ``keep``, within the process: it is made once."""
    nbytes: int = 0
    """Requested bytes (ignored for a free)."""
    most: int | None = None
    """Most bytes that it may be, where only a closed library knows: then ``nbytes`` is likely, and 0 the least."""
    spare: bool = False
    """Does that library do with less, down to nothing, where memory is short?"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Script:
    """A kernel's scratch in order, relative to the allocation of the op's results."""

    before: tuple[Scratch, ...] = ()
    """Made before the results are allocated."""
    between: Mapping[Path, tuple[Scratch, ...]] = field(default_factory=dict)
    """Made after the results that stand before the one at this place, and before that one."""
    after: tuple[Scratch, ...] = ()
    """Made after them. Whatever is still held at the end is freed there in reverse order."""

    @property
    def lines(self) -> tuple[Scratch, ...]:
        """All of it."""
        return *self.before, *(line for lines in self.between.values() for line in lines), *self.after


@dataclass(frozen=True, slots=True, kw_only=True)
class Call:
    """One op call as a rule sees it; tensors are fake."""

    name: str
    """``aten.sum.dim_IntList``."""
    args: tuple[Any, ...]
    """Positional arguments."""
    kwargs: Mapping[str, Any]
    """Keyword arguments."""
    out: Any
    """The op's results."""
    device: DeviceTraits
    """What it runs on."""
    in_backward: bool
    """Does it run on the autograd thread (which has a library handle of its own)?"""
    is_host: Callable[[torch.Tensor], bool]
    """Does this tensor lie in host memory?"""
    heard: Callable[[], float | None] = lambda: None
    """What a real run read of the data here (``heard``); None where there was none."""


Rule = Callable[[Call], Script | None]
"""None: this call needs no scratch."""

RuleTable = Mapping[str, Rule]
"""Op name → rule."""


def within(sizes: Mapping[str, int]) -> Script:
    """A script that allocates these after the results and frees them in reverse order at the op's end."""
    return Script(after=tuple(Scratch("alloc", key, nbytes) for key, nbytes in sizes.items() if nbytes))
