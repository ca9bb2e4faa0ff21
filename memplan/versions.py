"""Versions of packages, for reports."""

from importlib.metadata import PackageNotFoundError, version


def installed(package: str) -> str:
    """The version of an installed package; ``unknown`` where it only lies on the path, as in a checkout."""
    try:
        return version(package)
    except PackageNotFoundError:
        return "unknown"
