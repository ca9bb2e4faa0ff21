"""What was looked for on a machine, and what was found."""

from dataclasses import dataclass
from typing import Literal

Group = Literal["versions", "seam", "solvers", "extras", "devices", "caches"]
State = Literal["there", "absent", "lost"]
"""There, not there and not needed, or not there though memplan cannot do without it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DoctorCheck:
    """One thing that was looked for."""

    group: Group
    """What kind of thing it is."""
    name: str
    """What it is called."""
    state: State = "there"
    """Was it found?"""
    found: str = ""
    """What was found: a version, a number, a place."""
    note: str = ""
    """What it is for; where it was not found, what that costs."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Checkup:
    """Everything that was looked for, in the order to show."""

    checks: tuple[DoctorCheck, ...]
    """One for each thing."""

    @property
    def lost(self) -> tuple[DoctorCheck, ...]:
        """What memplan cannot do without, and did not find."""
        return tuple(check for check in self.checks if check.state == "lost")
