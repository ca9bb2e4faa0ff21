"""What the audit counts of memory pools: first in one file, then in all of them."""

from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True, kw_only=True)
class Definition:
    """A definition and its place."""

    name: str
    """As the code calls it."""
    file: str
    """As it was reached."""
    line: int
    """From 1."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PoolClass(Definition):
    """A class that hands out memory."""

    hands_out: tuple[str, ...]
    """Its methods that hand out."""
    takes_back: tuple[str, ...]
    """Its methods that take back."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PoolSwitch(Definition):
    """A parameter or an attribute that turns a pool on."""

    default: bool
    """Is the pool used where nobody says otherwise?"""


@dataclass(frozen=True, slots=True, kw_only=True)
class PoolCalls:
    """What one class takes from pools and gives back, counted in the text and not in a run."""

    file: str
    """As it was reached."""
    owner: str
    """The class; empty: functions outside of any class."""
    taken: int
    """Calls that take."""
    given_back: int
    """Calls that give back, and takes in a with block."""
    handed_on: int
    """Takes whose result is returned or passed to another call: somebody else may give it back."""
    gives_all_back: bool
    """A call gives back whatever was taken (``reset``, ``close``, ``free_all``)."""

    @property
    def is_short(self) -> bool:
        """Does it give back less often than it takes?"""
        return self.taken > self.given_back and not self.gives_all_back


@dataclass(frozen=True, slots=True, kw_only=True)
class ModuleClass(Definition):
    """A class that may be a network's module."""

    bases: tuple[str, ...]
    """Names of its bases, without their packages."""
    is_module: bool
    """Is one of them ``torch.nn``'s?"""
    has_pool: bool
    """Does it speak of a memory pool?"""


@dataclass(frozen=True, slots=True, kw_only=True)
class FilePools:
    """One file."""

    classes: tuple[PoolClass, ...] = ()
    """Pools that it defines."""
    factories: tuple[Definition, ...] = ()
    """Its functions that give a pool."""
    imported: frozenset[str] = frozenset()
    """Pools, and functions that give one, that it imports."""
    used: frozenset[str] = frozenset()
    """Names of pools and of such functions that its code uses."""
    switches: tuple[PoolSwitch, ...] = ()
    """What turns pools on and off."""
    calls: tuple[PoolCalls, ...] = ()
    """Takes and returns by class."""
    modules: tuple[ModuleClass, ...] = ()
    """Classes with a base."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PoolCensus:
    """All files together; empty where nobody has a pool of memory."""

    classes: tuple[PoolClass, ...] = ()
    """Pools that the code defines."""
    imported: Mapping[str, int] = field(default_factory=dict)
    """Pool, or function that gives one, and how many files import it."""
    used: Mapping[str, int] = field(default_factory=dict)
    """The same, and how many files use it."""
    switches: tuple[PoolSwitch, ...] = ()
    """What turns pools on and off."""
    calls: tuple[PoolCalls, ...] = ()
    """Takes and returns by class and file."""
    unused_factories: tuple[Definition, ...] = ()
    """Functions that give a pool, and that no file uses."""
    modules: int = 0
    """Modules of networks (``torch.nn.Module``)."""
    modules_without_pool: tuple[Definition, ...] = ()
    """Those that speak of no pool, nor do their bases."""
    differing_names: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    """Method and the pools that have it, where no one name of taking, or none of giving back, is common to all."""

    @property
    def is_empty(self) -> bool:
        """Is there no pool of memory anywhere?"""
        return not (self.classes or self.imported or self.used or self.switches or self.calls or self.unused_factories)


NO_POOLS = FilePools()
EMPTY_CENSUS = PoolCensus()
