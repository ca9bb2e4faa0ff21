"""Replacing attributes of libraries for the length of a context: only what the table of patches lists."""

import contextlib
from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple

from memplan.seam.find import missing, owner_of
from memplan.seam.patches import PATCHES


class Replacement(NamedTuple):
    """One attribute and what stands there meanwhile."""

    path: str
    """The patch's path in the table."""
    value: object
    """What stands there."""
    owner: object = None
    """The module or class itself, where the path stands for several."""
    name: str = ""
    """The attribute, where the path stands for several."""


@contextlib.contextmanager
def replaced(replacements: Iterable[Replacement]) -> Iterator[None]:
    """Set attributes, and put the former values back at the end, in reverse order.

    Args:
        replacements: What to set where. A name that a library is not expected to have, by the table, is left out.

    Yields:
        Nothing.

    Raises:
        SeamError: A library lacks what it is expected to have.
    """
    present = [located for located in map(_located, replacements) if located is not None]
    # Through __dict__, so that staticmethods and inherited attributes come back as they were.
    former = [vars(owner).get(name, _INHERITED) for owner, name, _ in present]
    try:
        for owner, name, value in present:
            setattr(owner, name, value)
        yield
    finally:
        for (owner, name, _), value in reversed(list(zip(present, former, strict=True))):
            if value is _INHERITED:
                delattr(owner, name)
            else:
                setattr(owner, name, value)


_INHERITED = object()


def _located(replacement: Replacement) -> tuple[Any, str, object] | None:
    """Who has the attribute, its name and the value; None where the library need not have it."""
    row = PATCHES[replacement.path]
    owner = owner_of(row, replacement.owner, replacement.name)
    return None if owner is None else (owner, replacement.name or row.name, replacement.value)


def attribute(path: str) -> Any:
    """What stands at a patch's path now, for replacements that call it.

    Raises:
        SeamError: Nothing does.
    """
    row = PATCHES[path]
    owner = owner_of(row)
    if owner is None:
        raise missing(row)
    return getattr(owner, row.name)
