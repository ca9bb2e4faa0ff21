"""What is asked of every function here: a model, a batch, and what goes with them, as the job that they make."""

import itertools
import sys
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any

from memplan.api.copies import batch_maker, model_maker, optimizer_maker, samples
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
    by_trainer: bool = True,
) -> Iterator[LiveJob]:
    """Make a job of what a function was given; arguments as of ``memplan.estimate``.

    ``by_trainer`` lets transformers' Trainer train a target that it can train.

    Raises:
        UsageError: Something cannot be, or another trace runs in this process.
    """
    profile = load_profile(gpu)
    live = {"batch": batch, "step": step, "loss": loss, "optimizer": optimizer}
    named = {name: value for name, value in live.items() if isinstance(value, str)}
    live = {name: None if name in named else value for name, value in live.items()}
    if isinstance(model, str):
        yield LiveJob(
            spec=_named(model, profile, live, {**options, **named}, by_trainer=by_trainer),
            profile=profile,
            name=model,
            is_live=False,
        )
        return
    own = dict(options)
    if batch is not None and not callable(batch):
        if "batch_size" in own:
            raise UsageError("batch_size: the batch that is given has a size", hint="give a function of batch_size")
        own["batch_size"] = max(1, samples(batch))
    with alone(), live_target(model, **live) as target:
        spec = read_options(target, profile.name, {**own, **named}, _CALL).spec
        yield LiveJob(spec=spec, profile=profile, name=_name(model), is_live=True)


def said(field: str, source: str) -> str:
    """Return where a value came from, without the names that a target and a project file would have."""
    return f"{_CALL}({field}=…)" if source.startswith((LIVE, f"{_CALL}:")) else source


def _named(
    target: str, profile: GpuProfile, live: Mapping[str, Any], options: Mapping[str, Any], *, by_trainer: bool
) -> JobSpec:
    given = [name for name, value in live.items() if value is not None]
    if given:
        raise UsageError(f"'{target}' is a target with {', '.join(given)} of its own", hint="give the model itself")
    return read_options(target, profile.name, options, _CALL, by_trainer=by_trainer).spec


def _name(model: Any) -> str:
    """A class's name; a function's own."""
    return getattr(model, "__name__", type(model).__name__)


@contextmanager
def alone() -> Iterator[None]:
    """Let one trace run at a time: it replaces parts of torch as long as it lasts.

    Raises:
        UsageError: Another one runs.
    """
    if not _ONE_AT_A_TIME.acquire(blocking=False):
        raise UsageError("another trace runs in this process", hint="one at a time, or in processes of their own")
    try:
        yield
    finally:
        _ONE_AT_A_TIME.release()


LIVE = "memplan_live_"
"""How the names of such modules begin."""
_NUMBERS = itertools.count(1)


@contextmanager
def live_target(
    model: "torch.nn.Module | Callable[[], torch.nn.Module]",
    batch: Any,
    *,
    loss: Callable[..., Any] | None,
    optimizer: Any,
    step: Callable[..., Any] | None,
) -> Iterator[str]:
    """Give the name of a target that stands for these objects, as long as the context lasts.

    Args:
        model: A model, or what makes one.
        batch: A batch, a function ``(batch_size)`` or ``(batch_size, seq_len)``, or None.
        loss: ``(output, batch)``, or one of torch's own losses, which is given the batch's last item.
        optimizer: An optimizer of the model's parameters, or a function of them.
        step: ``(model, optimizer, batch)``.

    Yields:
        ``module:factory``.
    """
    import torch

    if isinstance(optimizer, torch.optim.Optimizer):
        if not isinstance(model, torch.nn.Module):
            raise UsageError("an optimizer that exists needs the model that exists", hint="give optimizer=a function")
        optimizer = optimizer_maker(optimizer, model)
    module = ModuleType(f"{LIVE}{next(_NUMBERS)}")
    module.__file__ = None
    parts = {
        "model": model_maker(model) if isinstance(model, torch.nn.Module) else model,
        "batch": batch if callable(batch) or batch is None else batch_maker(batch),
        "loss": _of_batch(loss) if loss is not None and _is_of_torch(loss) else loss,
        "optimizer": optimizer,
        "train_step": step,
    }
    vars(module).update({name: part for name, part in parts.items() if part is not None})
    sys.modules[module.__name__] = module
    try:
        yield f"{module.__name__}:model"
    finally:
        del sys.modules[module.__name__]


def _is_of_torch(loss: Callable[..., Any]) -> bool:
    """Is it one of torch's losses, which take an output and what it should have been?"""
    owner = getattr(loss, "__module__", None) or type(loss).__module__
    return owner.partition(".")[0] == "torch"


def _of_batch(loss: Callable[..., Any]) -> Callable[[Any, Any], Any]:
    return lambda output, batch: loss(output, batch[-1])
