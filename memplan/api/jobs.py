"""What is asked of every function here: a model, a batch, and what goes with them, as the job that they make."""

import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from memplan.api.copies import samples
from memplan.api.live import LIVE, live_target
from memplan.errors import UsageError
from memplan.hardware.catalog import load_profile
from memplan.hardware.profile import GpuProfile
from memplan.job.spec import JobSpec
from memplan.project.keywords import read_options

if TYPE_CHECKING:
    import torch

DEFAULT_GPU = "h100-80g"
"""What an answer is for where nobody says it."""
_CALL = Path("memplan")
"""What messages call the place that options come from."""
_ONE_AT_A_TIME = threading.Lock()


@dataclass(frozen=True, slots=True, kw_only=True)
class LiveJob:
    """A job, as long as it can be asked about."""

    spec: JobSpec
    """The job."""
    profile: GpuProfile
    """The device."""
    name: str
    """What reports call it."""
    is_live: bool
    """Is it made of objects of this process, so that it is traced here and nowhere else?"""


@contextmanager
def job_of(
    model: "torch.nn.Module | Callable[[], torch.nn.Module] | str",
    batch: Any,
    *,
    loss: Any,
    optimizer: Any,
    step: Callable[..., Any] | None,
    gpu: str,
    options: Mapping[str, Any],
) -> Iterator[LiveJob]:
    """Make a job of what a function was given; arguments as of ``memplan.estimate``.

    Raises:
        UsageError: Something cannot be, or another trace runs in this process.
    """
    profile = load_profile(gpu)
    live = {"batch": batch, "step": step, "loss": loss, "optimizer": optimizer}
    named = {name: value for name, value in live.items() if isinstance(value, str)}
    live = {name: None if name in named else value for name, value in live.items()}
    if isinstance(model, str):
        yield LiveJob(
            spec=_named(model, profile, live, {**options, **named}), profile=profile, name=model, is_live=False
        )
        return
    own = dict(options)
    if batch is not None and not callable(batch):
        if "batch_size" in own:
            raise UsageError("batch_size: the batch that is given has a size", hint="give a function of batch_size")
        own["batch_size"] = max(1, samples(batch))
    with _alone(), live_target(model, **live) as target:
        spec = read_options(target, profile.name, {**own, **named}, _CALL).spec
        yield LiveJob(spec=spec, profile=profile, name=_name(model), is_live=True)


def said(field: str, source: str) -> str:
    """Return where a value came from, without the names that a target and a project file would have."""
    return f"{_CALL}({field}=…)" if source.startswith((LIVE, f"{_CALL}:")) else source


def _named(target: str, profile: GpuProfile, live: Mapping[str, Any], options: Mapping[str, Any]) -> JobSpec:
    given = [name for name, value in live.items() if value is not None]
    if given:
        raise UsageError(f"'{target}' is a target with {', '.join(given)} of its own", hint="give the model itself")
    return read_options(target, profile.name, options, _CALL).spec


def _name(model: Any) -> str:
    """A class's name; a function's own."""
    return getattr(model, "__name__", type(model).__name__)


@contextmanager
def _alone() -> Iterator[None]:
    """A trace replaces parts of torch as long as it lasts."""
    if not _ONE_AT_A_TIME.acquire(blocking=False):
        raise UsageError("another trace runs in this process", hint="one at a time, or in processes of their own")
    try:
        yield
    finally:
        _ONE_AT_A_TIME.release()
