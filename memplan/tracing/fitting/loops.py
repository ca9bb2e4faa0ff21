"""Which library trains a model, if any does: Lightning its modules, transformers what ``--loop trainer`` asks for."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Literal

from torch import nn

from memplan.job.source import ModelSource
from memplan.job.spec import JobSpec
from memplan.tracing.fitting import lightning, trainer


@dataclass(frozen=True, slots=True, kw_only=True)
class LibraryLoop:
    """A library's way to train a model."""

    name: str
    """How messages call it."""
    fit: Callable[[Literal["cuda", "cpu"]], None]
    """Trains on a kind of device until somebody stops it."""
    said: str
    """What it does, for the report."""
    provenance: Mapping[str, str]
    """What it makes itself: field → whose."""


def library_loop(model: nn.Module, source: ModelSource, spec: JobSpec) -> LibraryLoop | None:
    """Return the loop of the library that trains a model; None: memplan's own does, or the target's.

    Raises:
        UsageError: An option asks for what that library does not do.
    """
    if spec.loop == "trainer":
        trainer.check(model, source, spec)
        return LibraryLoop(
            name=f"{type(model).__name__} in transformers' Trainer",
            fit=lambda kind: trainer.fit(model, source, spec, kind),
            said=trainer.SAID,
            provenance={} if spec.optimizer else {"optimizer": "TrainingArguments"},
        )
    if lightning.trains_itself(model, source, spec):
        return LibraryLoop(
            name=f"{type(model).__name__} in Lightning's Trainer",
            fit=lambda kind: lightning.fit(model, source, spec, kind),
            said=lightning.SAID,
            provenance={} if spec.optimizer else {"optimizer": "configure_optimizers"},
        )
    return None
