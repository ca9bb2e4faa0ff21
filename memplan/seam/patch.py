"""One private name of a library that memplan uses, or an attribute that it replaces while a trace runs."""

from dataclasses import dataclass
from typing import Literal

OLDEST = "2.6"
"""The oldest torch that memplan supports."""

Kind = Literal["replaced", "used", "kernel"]
"""An attribute that something else stands in for, a name that is used as it is, or a kernel that is replaced."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Patch:
    """One attribute of a module or class that memplan replaces or uses.

    ``required`` means that there is no answer where it is missing: figures can change. Of what is replaced and is not
    required, only user code calls it, which cannot call what its library does not have; what is used and not required
    is ``None`` where it is missing.
    """

    owner: str
    """Dotted path of the module or class; ``*`` stands for any part of it where several modules hold the name."""
    name: str
    """The attribute."""
    kind: Kind = "replaced"
    """What memplan does with it."""
    since: str = OLDEST
    """First release of the owner's package that has it."""
    until: str | None = None
    """First release of the package that does not have it any more."""
    required: bool = True
    """Is there no answer without it?"""
    added: bool = False
    """Does the replacement also go where there is nothing to replace?"""
    why: str
    """What it is for, as the end of "memplan replaces it so that ..."."""
    source: str
    """Where the library does what the replacement follows, or defines what is used."""

    @property
    def path(self) -> str:
        """Owner and name, by which replacements call it."""
        return f"{self.owner}.{self.name}"

    @property
    def package(self) -> str:
        """The library that it belongs to."""
        return self.owner.partition(".")[0]


def patch(
    path: str, *, why: str, source: str, since: str = OLDEST, required: bool = True, added: bool = False
) -> Patch:
    """One attribute that is replaced, by a name of its own."""
    owner, _, name = path.rpartition(".")
    return Patch(owner=owner, name=name, since=since, required=required, added=added, why=why, source=source)


def patches(
    owner: str, *names: str, why: str, source: str, since: str = OLDEST, until: str | None = None, required: bool = True
) -> tuple[Patch, ...]:
    """One patch for each of an owner's attributes that are replaced for the same reason."""
    return tuple(
        Patch(owner=owner, name=name, since=since, until=until, required=required, why=why, source=source)
        for name in names
    )


def used(
    owner: str, *names: str, why: str, source: str = "", since: str = OLDEST, required: bool = True
) -> tuple[Patch, ...]:
    """One row for each of an owner's names that are used for the same reason.

    Args:
        owner: A module or class.
        names: Of it.
        why: What for.
        source: Empty: the owner is a module written in Python.
        since: First release that has them.
        required: Is there no answer without them?
    """
    source = source or f"{owner.replace('.', '/')}.py"
    return tuple(
        Patch(owner=owner, name=name, kind="used", since=since, required=required, why=why, source=source)
        for name in names
    )
