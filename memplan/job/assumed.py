"""What the user knows of data that nobody else knows: ``--assume item@train.py:88=7``."""

import re
from dataclasses import dataclass

from memplan.errors import UsageError

_ITEM = re.compile(r"item@(?P<place>.+:\d+)=(?P<number>-?\d+)")


@dataclass(frozen=True, slots=True, kw_only=True)
class AssumedInteger:
    """An integer that a program reads from a tensor."""

    place: str
    """File and line where it does."""
    number: int

    def __str__(self) -> str:
        """As it is typed."""
        return f"item@{self.place}={self.number}"


def parse_assumed(text: str) -> AssumedInteger:
    """Return the integer that somebody typed.

    Raises:
        UsageError: It is of another form.
    """
    match = _ITEM.fullmatch(text)
    if match is None:
        raise UsageError(f"cannot read '{text}'", where="--assume", hint="write item@FILE:LINE=NUMBER")
    return AssumedInteger(place=match["place"], number=int(match["number"]))
