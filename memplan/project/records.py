"""The jobs of a repository, the devices that they are for, and what they may need there."""

from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

from memplan.job.spec import JobSpec
from memplan.units import Bytes

FailOn = Literal["oom", "tight", "unknown"]
"""A verdict: the job fails at it and at worse ones. From worst to mildest."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Amount:
    """A size, as bytes (``"72GiB"``) or as a share of something (``"5%"``). One of the two is set."""

    bytes: Bytes | None = None
    """The size itself."""
    share: float | None = None
    """Of what it is compared with, 0.05 for 5 %."""

    def of(self, whole: int) -> int:
        """The size in bytes, of a whole in bytes."""
        return round(self.share * whole) if self.share is not None else self.bytes or 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Policy:
    """What a job may need. All sizes are of the device peak, as nvidia-smi shows it."""

    max_peak: Bytes | None = None
    """The peak at most; None: whatever fits."""
    min_headroom: Amount | None = None
    """Usable memory left at least; a share is of what is usable."""
    max_increase: Amount | None = None
    """Growth over the baseline at most; a share is of the baseline's peak. None: growth is told, not judged."""
    max_fragmentation: float | None = None
    """Share of reserved bytes at the peak that nobody asked for, at most."""
    fail_on: FailOn = "oom"
    """The verdict at which the job fails."""
    informational: bool = False
    """Findings are told and never fail the gate: for adoption."""
    message: str = ""
    """Told with every failure: whom to ask, where to change the limit."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ProjectJob:
    """One ``[[job]]``."""

    name: str
    """Unique in its file; what baselines and reports call it."""
    spec: JobSpec
    """What is traced; files in it are named so that they are found from the working directory."""
    gpus: tuple[str, ...]
    """Names of profiles; at least one."""
    policy: Policy = field(default_factory=Policy)
    """What it may need."""
    alloc_conf: str = ""
    """``PYTORCH_CUDA_ALLOC_CONF`` of the run."""
    timeout: float = 600.0
    """Seconds that the target's code may take."""
    line: int = 1
    """Where its table begins in the project's file; 1 where that is not known."""
    notes: tuple[str, ...] = ()
    """What its configuration files say that was understood otherwise, or not at all."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Project:
    """A project file with everything that overrides it."""

    file: Path
    """``memplan.toml`` or ``pyproject.toml``."""
    jobs: tuple[ProjectJob, ...]
    """In the order of the file."""
    baseline: Path | None = None
    """Where the accepted figures lie; None: nowhere. The file need not exist before ``--update-baseline``."""
    profile_dirs: tuple[Path, ...] = ()
    """Folders of further GPU profiles."""
