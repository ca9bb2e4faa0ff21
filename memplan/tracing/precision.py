"""Precision options as PyTorch programs write them: a cast of the model, or autocast around forward and loss."""

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import torch

from memplan.job.spec import Precision

_CAST = {"fp16": torch.float16, "bf16": torch.bfloat16}
_AUTOCAST = {"fp16-mixed": torch.float16, "bf16-mixed": torch.bfloat16}


def model_dtype(precision: Precision) -> torch.dtype | None:
    """The dtype that the whole model is cast to; None leaves it as built."""
    return _CAST.get(precision)


def compute_dtype(precision: Precision) -> torch.dtype | None:
    """The dtype that matrices are multiplied in; None is that of the model as built."""
    return _CAST.get(precision) or _AUTOCAST.get(precision)


def autocast(precision: Precision, device: str) -> Callable[[], AbstractContextManager[Any]]:
    """The context of forward and loss.

    Args:
        precision: The job's option.
        device: ``cuda`` or ``cpu``.
    """
    dtype = _AUTOCAST.get(precision)
    if dtype is None:
        return nullcontext
    return lambda: torch.autocast(device, dtype=dtype)


def scaler(precision: Precision, device: str) -> Any:
    """A gradient scaler where fp16 runs under autocast, as every recipe has one; else None."""
    return torch.amp.GradScaler(device) if precision == "fp16-mixed" else None
