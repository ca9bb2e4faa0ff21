"""What every source of published peaks hands to ``benchmarks/accuracy.py``."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal


@dataclass(frozen=True, slots=True, kw_only=True)
class Prediction:
    """Predicted peaks of one run, in bytes."""

    requested: int
    """Bytes asked for."""
    allocated: int
    """Bytes in live blocks: ``torch.cuda.max_memory_allocated``."""
    reserved: int
    """Bytes in segments: ``torch.cuda.max_memory_reserved``."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """One published figure whose configuration is complete enough to run."""

    id: str
    """Its id in ``measured.csv``, or a name made likewise."""
    source: str
    """Who published it."""
    workload: str
    """Class of workload for which residuals are pooled: ``full``, ``lora``, ``qlora``, ``inference``, ``kernel``,
    ``init`` (a model that is built and no more)…"""
    metric: Literal["requested", "allocated", "reserved"]
    """Which of the predicted peaks the figure is to be held against."""
    measured: int
    """The published figure in bytes."""
    resolution: int
    """Half of the last digit's worth, in bytes: a figure of 6.76 GB says no more than ±5,000,000."""
    predict: Callable[[], Prediction]
    """Runs the program on fake tensors."""
    assumptions: tuple[str, ...] = ()
    """What the source does not say and had to be assumed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Excluded:
    """A figure that cannot be reproduced, decided before any error was looked at."""

    id: str
    source: str
    reason: str
    """Why: what of its configuration is unknown, or what memplan does not do yet."""
