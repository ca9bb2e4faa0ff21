"""How full a device may be: one table for plans, monitors, gates and batches that adapt."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal, get_args

Utilization = Literal["conservative", "balanced", "aggressive"]
UTILIZATIONS: tuple[Utilization, ...] = get_args(Utilization)


@dataclass(frozen=True, slots=True, kw_only=True)
class UtilizationThresholds:
    """Shares of a device's usable bytes."""

    target: float
    """A plan takes at most this."""
    warn: float
    """A monitor warns from here."""
    critical: float
    """Something should be done from here."""
    emergency: float
    """Out of memory is near."""


THRESHOLDS: Mapping[Utilization, UtilizationThresholds] = {
    "conservative": UtilizationThresholds(target=0.85, warn=0.88, critical=0.92, emergency=0.95),
    "balanced": UtilizationThresholds(target=0.90, warn=0.92, critical=0.95, emergency=0.97),
    "aggressive": UtilizationThresholds(target=0.92, warn=0.94, critical=0.96, emergency=0.98),
}
"""Choice of this project, not a measurement: how careful a user wants to be."""
DEFAULT: Utilization = "balanced"
"""Of whoever needs shares and was told none."""
BALANCED = THRESHOLDS[DEFAULT]
