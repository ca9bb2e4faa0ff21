"""Looking up what the tables list, in the libraries that are installed."""

import importlib
import sys
import warnings
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import Any

from memplan.errors import EstimateError
from memplan.seam.patch import OLDEST, Patch
from memplan.seam.releases import NEWEST_TRIED
from memplan.versions import at_least, installed


class SeamError(EstimateError):
    """A library no longer has what memplan replaces or uses, so that its figures would be wrong."""


def lent(rows: Iterable[Patch]) -> Callable[[str], Any]:
    """The ``__getattr__`` of a module that hands names out: ``_name`` is called ``name`` there.

    Each import looks anew, and imports the owner only then. What need not be there, by the table, is ``None`` where it
    is missing.
    """
    by_name = {row.name.lstrip("_"): row for row in rows}

    def look_up(name: str) -> Any:
        row = by_name.get(name)
        if row is None:
            raise AttributeError(name)
        return getattr(owner_of(row), row.name, None)

    return look_up


def owner_of(row: Patch, owner: object = None, name: str = "") -> Any:
    """Who has a name of the tables; None where nobody has it, and need not.

    Args:
        row: Of the tables.
        owner: The module or class itself, where the row stands for several.
        name: The attribute, where the row stands for several.

    Raises:
        SeamError: The library lacks what it is expected to have.
    """
    name = name or row.name
    owner = owner if owner is not None else imported(row.owner)
    if owner is not None and (has(owner, name) or row.added):
        return owner
    if row.required and is_expected(row):
        raise missing(row)
    return None


def is_lost(row: Patch) -> bool:
    """Does a library lack a name that it is expected to have?"""
    with warnings.catch_warnings():
        # Of what is imported to look into it; torch warns of parts of its own.
        warnings.simplefilter("ignore")
        try:
            owner_of(row)
        except SeamError:
            return True
    return False


def has(owner: Any, name: str) -> bool:
    """Does a module or class have an attribute? Asked in one place, so that a test can play other releases."""
    if not hasattr(owner, name) and hasattr(owner, "__path__"):
        # A module within a package is an attribute of it once it has been imported.
        _module(f"{owner.__name__}.{name}")
    return hasattr(owner, name)


def is_expected(row: Patch) -> bool:
    """Does the installed release have the attribute, by the table?"""
    release = installed(row.package)
    return at_least(release, row.since) and (row.until is None or not at_least(release, row.until))


def missing(row: Patch) -> SeamError:
    """What to tell where a library lacks an attribute."""
    verb = "uses" if row.kind == "used" else "replaces"
    end = "there is no figure without it" if row.kind == "used" else "figures would be wrong"
    error = SeamError(
        f"{row.package} {installed(row.package)} has no {row.path}, which memplan {verb} so that {row.why}: {end}",
        hint=f"install {_tried(row.package)}, or a newer memplan",
    )
    _LOSSES.append(error)
    return error


_LOSSES: list[SeamError] = []
"""What libraries were found to lack since ``no_loss_is_hidden`` was entered."""


@contextmanager
def no_loss_is_hidden() -> Iterator[None]:
    """Raise at the end what a library was found to lack, though the code between has caught it (``except Exception``).

    Raises:
        SeamError: The first such loss.
    """
    _LOSSES.clear()
    yield
    if _LOSSES:
        raise _LOSSES[0]


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
