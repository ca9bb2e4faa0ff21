"""What a marker says, read with all that is wrong told at once; and what came of an estimate that a test made."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

from memplan.errors import MemplanError, UsageError, several
from memplan.hardware.catalog import load_profile
from memplan.project.keywords import read_options
from memplan.units import parse_size

if TYPE_CHECKING:
    from memplan.measure.records import Estimate
    from memplan.project.records import ProjectJob


_T = TypeVar("_T")
_FORM = '@pytest.mark.limit_gpu_memory("70 GiB", gpu="h100-80g", target="train.py:model", batch_size=8)'


@dataclass(frozen=True, slots=True, kw_only=True)
class MarkerLimit:
    """What one marker allows."""

    gpu: str | None
    """The profile that estimates are made for; None: the estimate itself says."""
    bytes: int | None
    """The device peak at most; None: what is usable."""
    typed: str
    """As the test says it, for sentences."""
    job: "ProjectJob | None"
    """What the marker estimates by itself; None: it limits what the test estimates."""
    options: dict[str, object]
    """Of the marker; for estimates that the test makes they are defaults."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Figure:
    """One estimate of a test, as it travels from worker to controller and stays in pytest's cache."""

    key: str
    """The test, and which of its estimates it is."""
    target: str
    """As it was named."""
    gpu: str
    """The profile's name."""
    verdict: str
    """Of the estimate."""
    device_bytes: int
    """The predicted device peak."""
    limit_bytes: int | None
    """What the test allows; None: nothing was said."""
    previous_bytes: int | None
    """The figure that it is compared with; None: there is none."""

    @property
    def grown(self) -> int:
        """Bytes more than before; 0 where there is nothing to compare with."""
        return self.device_bytes - self.previous_bytes if self.previous_bytes is not None else 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Made:
    """An estimate and what is kept of it."""

    estimate: "Estimate"
    """The answer."""
    figure: Figure
    """What is kept."""


def read_marker(args: Sequence[object], kwargs: Mapping[str, object], file: Path) -> MarkerLimit:
    """Read one marker.

    Returns:
        What it allows.

    Raises:
        UsageError: Something is wrong with it.
    """
    problems = [f"limit_gpu_memory takes one limit, not {len(args)} of them"] if len(args) > 1 else []
    size = _collect(problems, partial(_size, args[0])) if args else None
    options = {name: value for name, value in kwargs.items() if name not in ("gpu", "target")}
    gpu, target, job = kwargs.get("gpu"), kwargs.get("target"), None
    profile = _collect(problems, partial(load_profile, str(gpu))) if gpu is not None else None
    if target is not None and gpu is None:
        problems.append("limit_gpu_memory has a target and no gpu")
    if target is not None and profile is not None:
        job = _collect(problems, partial(read_options, str(target), profile.name, options, file))
    if problems:
        raise several(problems, hint=f"for example {_FORM}")
    typed = str(args[0]) if args else ""
    return MarkerLimit(gpu=profile.name if profile else None, bytes=size, typed=typed, job=job, options=options)


def _size(typed: object) -> int:
    if not isinstance(typed, str):
        raise UsageError(f"the limit is a size such as '70 GiB', not {typed!r}")
    try:
        size = parse_size(typed)
    except ValueError as error:
        raise UsageError(str(error)) from error
    if not size:
        raise UsageError(f"the limit is a size above 0, not '{typed}'")
    return size


def _collect(problems: list[str], read: Callable[[], _T]) -> _T | None:
    try:
        return read()
    except MemplanError as error:
        problems.append(error.what + (f"; {error.hint}" if error.hint else ""))
        return None
