"""One line of the table."""

from typing import NamedTuple


class Figure(NamedTuple):
    """A measured figure beside its goal."""

    what: str
    """What is measured, with its conditions: sizes, threads, peers."""
    value: str
    """The figure with its unit; ratios rather than seconds."""
    goal: str = ""
    """What it is to be; empty where it is for information."""
    met: bool | None = None
    """Is it so? None where there is no goal."""
