"""What is found about growth. Torch-free."""

from dataclasses import dataclass
from enum import StrEnum

Origin = tuple[str, int, str]
"""File, line and function."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TooShort:
    """Nothing can be said yet."""

    needed: int
    """Steps that have to be seen."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Growing:
    """The floor rises steadily up to the last step."""

    rate: float
    """Per step: the median slope between floors (Theil and Sen)."""
    low: float
    """Lower end of its 95 % interval (Sen 1968), as far as floors are independent."""
    high: float
    """Upper end."""
    since: int
    """First step of the longest stretch that shows it."""
    p_value: float
    """Chance of this, were one third of the stretch without growth."""


@dataclass(frozen=True, slots=True, kw_only=True)
class WarmUp:
    """The floor rose, and has stopped or slows down."""

    gained: float
    """By how much it rose."""
    until: int
    """Step by which it had."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Steady:
    """No growth."""

    noise: float
    """Spread of the latest floors: highest less lowest."""


Verdict = TooShort | Growing | WarmUp | Steady


class Outcome(StrEnum):
    """What an investigation came to."""

    LEAK = "leak"
    """Memory from long past steps stays, and nothing bounds it."""
    FILLING = "filling"
    """What stays goes into a container that has a bound."""
    CYCLES = "cycles"
    """The garbage collector gives it back, late."""
    LARGER = "larger steps"
    """Nothing stays: each step holds more than the one before."""
    STEADY = "steady"
    """Somebody asked, and nothing grows."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Link:
    """One reference of a chain."""

    kind: str
    """``global``, ``local``, ``attribute``, ``item``, ``key``, ``cell``, ``graph``, ``saved``, or ``object``."""
    name: str
    """As Python writes it: ``.losses``, ``[137]``, ``.grad_fn``."""
    holder: str
    """Type of what holds: ``list``, ``torch.nn.modules.linear.Linear``."""
    bound: int | None = None
    """Most items that the holder takes; None where nothing limits it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Chain:
    """How something is kept, from a root to it."""

    links: tuple[Link, ...]
    """From the root on."""
    rooted: bool
    """Does it begin at a variable? If not, it is kept by a cycle, or by C++ alone."""
    graph_nodes: int = 0
    """Steps of autograd's graph between the last Python object and the memory."""
    cycle: tuple[str, ...] = ()
    """Types along a cycle that keeps it, the first one again at the end."""

    def __str__(self) -> str:
        """The path as Python would write it."""
        return "".join(link.name for link in self.links)

    @property
    def bound(self) -> int | None:
        """Most items of the tightest bounded container on the way; None: nothing bounds it."""
        return min((link.bound for link in self.links if link.bound is not None), default=None)


@dataclass(frozen=True, slots=True, kw_only=True)
class Site:
    """What was born at one place and stayed."""

    place: Origin | None
    """User code nearest to the allocation; None where it was not seen to be born."""
    op: str
    """Op that allocated: ``aten.addmm``."""
    storages: int
    """How many stayed, of those born in the sampled steps."""
    steps: int
    """In how many of the sampled steps they were born."""
    nbytes: int
    """Their bytes."""
    bytes_per_step: float
    """Over the sampled steps."""
    shape: tuple[int, ...]
    """Of one of them."""
    dtype: str
    """Of one of them."""
    chain: Chain
    """How one of them is kept."""
    code: str
    """The cause (``memplan explain``)."""
    collected: bool
    """Did the garbage collector free it?"""
    leaks: bool = False
    """Is it part of a leak: born in several steps, without a bound, and not freed?"""
