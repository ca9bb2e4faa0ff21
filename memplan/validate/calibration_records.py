"""What a calibration measures of a device."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from memplan.hardware.profile import GpuProfile
from memplan.validate.records import DeviceFacts


class Transfer(NamedTuple):
    """One kind of copy."""

    kind: str
    """``host to device, pinned`` and the like."""
    nbytes: int
    """Size of one copy."""
    bytes_per_second: float
    """Best of several."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Calibration:
    """Figures of one device, as measured by an otherwise empty process."""

    facts: DeviceFacts
    """What its driver says."""
    usable_bytes: int | None
    """What a fresh process could take in all; None where that could not be seen."""
    context_low_bytes: int | None
    """The bare context."""
    context_bytes: int | None
    """The context once kernels of training steps are loaded."""
    cublas_workspace_bytes: int | None
    """What the first matrix product took beside its result."""
    cudnn_workspace_bytes: int | None
    """What the first convolution took beside its result, and gave back."""
    transfers: tuple[Transfer, ...]
    """Copies of all kinds."""
    notes: tuple[str, ...]
    """What could not be measured, each a sentence."""


@dataclass(frozen=True, slots=True, kw_only=True)
class WrittenProfile:
    """A calibration and the profile that it became."""

    calibration: Calibration
    """What was measured."""
    path: Path
    """The file."""
    before: GpuProfile | None
    """The profile that the file refines; None where none is like the device."""
    after: GpuProfile
    """The profile as it loads now."""


HOST_TO_DEVICE = "host to device, pinned"
"""The copy that gives ``host_link_bandwidth``."""
WITHIN_DEVICE = "within the device, bytes read and written"
"""The copy that gives ``memory_bandwidth``."""

Figures = Mapping[str, object]
"""Key of a profile → value."""
