"""Versions of packages, for reports."""

import re
from importlib.metadata import PackageNotFoundError, version


def installed(package: str) -> str:
    """The version of an installed package; ``unknown`` where it only lies on the path, as in a checkout."""
    try:
        return version(package)
    except PackageNotFoundError:
        return "unknown"


def at_least(release: str, least: str) -> bool:
    """Is a release as new as another or newer? One that nobody knows (``unknown``) counts as new.

    Args:
        release: As a package gives it, ``2.13.0+cpu``; builds and pre-releases count as their release.
        least: Numbers alone, ``2.6``.
    """
    numbers = _numbers(release)
    return not numbers or numbers >= _numbers(least)


def _numbers(release: str) -> tuple[int, ...]:
    found = re.match(r"\d+(?:\.\d+)*", release)
    return tuple(int(part) for part in found[0].split(".")) if found else ()
