# ruff: noqa: N802 - these names are MPI's.
"""``mpi4py`` where it is not installed: a program by itself is the only process, one under a launcher one of its ranks.

What the other ranks would send is taken to be what this one has, as in the process groups of torch.
"""

import importlib.machinery
import os
from collections.abc import Callable
from types import ModuleType
from typing import Any, Self

_OPERATIONS = ("SUM", "MAX", "MIN", "PROD", "LAND", "LOR", "BAND", "BOR", "MAXLOC", "MINLOC", "IN_PLACE", "COMM_NULL")
_TYPES = ("FLOAT", "DOUBLE", "INT", "LONG", "BYTE", "BOOL", "INT64_T", "COMM_TYPE_SHARED", "UNDEFINED", "ANY_SOURCE")


class Communicator:
    """``MPI.Comm`` of objects, and of buffers, which are written to as one rank alone would."""

    @property
    def rank(self) -> int:
        """This process."""
        return int(os.environ.get("RANK", "0"))

    @property
    def size(self) -> int:
        """How many there are."""
        return int(os.environ.get("WORLD_SIZE", "1"))

    def Get_rank(self) -> int:
        """The same, as a call."""
        return self.rank

    def Get_size(self) -> int:
        """The same, as a call."""
        return self.size

    def Split(self, *_: Any, **__: Any) -> Self:
        """A part of all ranks: all of them."""
        return self

    Split_type = Dup = Split

    def bcast(self, thing: Any, root: int = 0) -> Any:
        """What the root has."""
        del root
        return thing

    def allreduce(self, thing: Any, op: Any = None) -> Any:
        """A sum or the like, as large as one of its parts."""
        del op
        return thing

    reduce = allreduce

    def allgather(self, thing: Any) -> list[Any]:
        """One of each rank."""
        return [thing] * self.size

    def gather(self, thing: Any, root: int = 0) -> list[Any] | None:
        """The same, at the root."""
        return self.allgather(thing) if self.rank == root else None

    def scatter(self, things: Any, root: int = 0) -> Any:
        """The part of this rank."""
        del root
        return things[self.rank]

    def Allreduce(self, mine: Any, into: Any, op: Any = None) -> None:
        """A sum of arrays, written to another."""
        del op
        if not isinstance(mine, str):  # ``MPI.IN_PLACE``: what is sent stands there already.
            into[...] = mine

    Reduce = Allreduce

    def Barrier(self, *_: Any, **__: Any) -> None:
        """All ranks are there."""

    barrier = Bcast = Barrier


class MpiModule(ModuleType):
    """The stand-in of the package, or of its module ``MPI``."""


class _Loader:
    def __init__(self, assume: Callable[[str], None]) -> None:
        self._assume = assume

    def create_module(self, spec: importlib.machinery.ModuleSpec) -> ModuleType:
        return MpiModule(spec.name)

    def exec_module(self, module: ModuleType) -> None:
        if module.__name__ == "mpi4py.MPI":
            everyone = Communicator()
            words = {name: name for name in (*_OPERATIONS, *_TYPES)}
            vars(module).update(words, COMM_WORLD=everyone, COMM_SELF=everyone, Comm=Communicator)
            self._assume("mpi4py is not installed: other ranks are taken to send what this one has")


def spec_of(name: str, assume: Callable[[str], None]) -> importlib.machinery.ModuleSpec | None:
    """Where an import finds the stand-in; None for everything else."""
    if name not in {"mpi4py", "mpi4py.MPI"}:
        return None
    return importlib.machinery.ModuleSpec(name, _Loader(assume), is_package=True)  # type: ignore[arg-type]
