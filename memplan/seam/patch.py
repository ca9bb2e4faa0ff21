"""One attribute of a library that memplan replaces while a trace runs."""

from dataclasses import dataclass

OLDEST = "2.6"
"""The oldest torch that memplan supports."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Patch:
    """One attribute of a module or class that memplan replaces.

    ``required`` means that figures can change where it is missing: then there is no answer. What is not required
    is called by user code alone, which cannot call what its library does not have.
    """

    owner: str
    """Dotted path of the module or class; ``*`` stands for any part of it where several modules hold the name."""
    name: str
    """The attribute."""
    since: str = OLDEST
    """First release of the owner's package that has it."""
    until: str | None = None
    """First release of the package that does not have it any more."""
    required: bool = True
    """Is there no answer without it?"""
    why: str
    """What replacing it is for, as the end of "memplan replaces it so that ..."."""
    source: str
    """Where the library does what the replacement follows."""

    @property
    def path(self) -> str:
        """Owner and name, by which replacements call it."""
        return f"{self.owner}.{self.name}"

    @property
    def package(self) -> str:
        """The library that it belongs to."""
        return self.owner.partition(".")[0]


def patches(
    owner: str,
    *names: str,
    why: str,
    source: str,
    since: str = OLDEST,
    until: str | None = None,
    required: bool = True,
) -> tuple[Patch, ...]:
    """One patch for each of an owner's attributes that are replaced for the same reason."""
    return tuple(
        Patch(owner=owner, name=name, since=since, until=until, required=required, why=why, source=source)
        for name in names
    )
