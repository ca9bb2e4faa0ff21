"""Replacing attributes of libraries for the length of a context: only what the table of patches lists."""

import contextlib
import importlib
import sys
from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple

from memplan.errors import EstimateError
from memplan.seam.patch import OLDEST, Patch
from memplan.seam.patches import PATCHES
from memplan.seam.releases import NEWEST_TRIED
from memplan.versions import at_least, installed


class SeamError(EstimateError):
    """A library no longer has what memplan replaces, so that its figures would be wrong."""


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
    present = [found for found in map(_located, replacements) if found is not None]
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
    patch = PATCHES[replacement.path]
    owner = replacement.owner if replacement.owner is not None else imported(patch.owner)
    name = replacement.name or patch.name
    if owner is not None and has(owner, name):
        return owner, name, replacement.value
    if patch.required and is_expected(patch):
        raise missing(patch)
    return None


def attribute(path: str) -> Any:
    """What stands at a patch's path now, for replacements that call it.

    Raises:
        SeamError: Nothing does.
    """
    patch = PATCHES[path]
    owner = imported(patch.owner)
    if owner is None or not has(owner, patch.name):
        raise missing(patch)
    return getattr(owner, patch.name)


def has(owner: object, name: str) -> bool:
    """Does a module or class have an attribute? Asked in one place, so that a test can play other releases."""
    return hasattr(owner, name)


def is_expected(patch: Patch) -> bool:
    """Does the installed release have the attribute, by the table?"""
    release = installed(patch.package)
    return at_least(release, patch.since) and (patch.until is None or not at_least(release, patch.until))


def missing(patch: Patch) -> SeamError:
    """What to tell where a library lacks an attribute."""
    return SeamError(
        f"{patch.package} {installed(patch.package)} has no {patch.path}, which memplan replaces so that {patch.why}: "
        "figures would be wrong",
        hint=f"install {_tried(patch.package)}, or a newer memplan",
    )


def _tried(package: str) -> str:
    if package == "torch":
        return f"a torch that memplan was tried with ({OLDEST} to {NEWEST_TRIED})"
    return f"an older {package}"


def imported(path: str) -> Any:
    """The module or class of a dotted path; None where there is none.

    Looked up anew every time: what a job imports is forgotten after it, and imported again as other objects.
    """
    parts = path.split(".")
    found: Any = None
    for count, part in enumerate(parts, start=1):
        prefix = ".".join(parts[:count])
        # A module before the attribute of its name: torch._higher_order_ops has both for flex_attention.
        found = sys.modules.get(prefix) or getattr(found, part, None) or _module(prefix)
        if found is None:
            return None
    return found


def _module(path: str) -> Any:
    try:
        return importlib.import_module(path)
    except ImportError:
        return None
