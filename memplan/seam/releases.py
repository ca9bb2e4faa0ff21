"""Releases of torch that memplan was run with, whole suites, and the day of it (docs/development/compatibility.md)."""

from memplan.versions import at_least

TRIED = {"2.6": "2026-11-28", "2.13": "2026-11-28", "2.15": "2026-11-28"}
"""Release → day."""

NEWEST_TRIED = "2.15"
"""The newest of them."""


def tried(release: str) -> str | None:
    """Return the day on which memplan was run with a release of torch; None: never.

    Args:
        release: ``2.13.0+cpu``.
    """
    return TRIED.get(".".join(release.split(".")[:2]))


def untried(release: str) -> str | None:
    """A sentence for reports if a torch is newer than all that memplan was run with; else None.

    Args:
        release: ``2.16.0+cpu``; a release that cannot be told counts as tried.
    """
    following = f"{NEWEST_TRIED.partition('.')[0]}.{int(NEWEST_TRIED.partition('.')[2]) + 1}"
    if not release[:1].isdigit() or not at_least(release, following):
        return None
    return f"torch {release} behaves as {NEWEST_TRIED} does, the newest that memplan was tried with"
