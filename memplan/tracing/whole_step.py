"""Model and loss of a target as one module, which is what a compiled step is traced from. Runs in the fake world."""

from collections.abc import Mapping
from typing import Any

import torch

from memplan.errors import UsageError
from memplan.job.defaults import caller, default_loss
from memplan.job.load import load_source
from memplan.job.source import ModelSource
from memplan.job.spec import JobSpec
from memplan.job.usercode import user_code
from memplan.tracing import precision
from memplan.tracing.place import cast_floats

OWN_STEP = "the target's train_step is left aside: the step is forward, loss and backward"


class WholeStep(torch.nn.Module):
    """From a batch to the loss.

    Args:
        model: The model, cast and in training mode.
        source: May have a loss of its own.
        spec: Says the precision.
    """

    def __init__(self, model: torch.nn.Module, source: ModelSource, spec: JobSpec) -> None:
        super().__init__()
        self.model = model
        self._call = caller(source.loss_items)
        self._loss = source.loss or default_loss
        self._autocast = precision.autocast(spec.precision, "cpu")

    def forward(self, batch: Any) -> torch.Tensor:
        """The loss of a batch."""
        with self._autocast():
            return self._loss(self._call(self.model, batch), batch)


def whole_step(spec: JobSpec) -> tuple[WholeStep, Any, tuple[str, ...]]:
    """Build a target's step.

    Returns:
        The step, a batch for it, and what was taken for granted.

    Raises:
        UsageError: The target does not say what its step is, or nothing in it learns.
        EstimateError: User code fails.
    """
    source = load_source(spec)
    with user_code("model()"):
        model = source.model()
    dtype = precision.model_dtype(spec.precision)
    if dtype is not None:
        model = model.to(dtype)
    model.train()
    if not any(parameter.requires_grad for parameter in model.parameters()):
        raise UsageError("no parameter of the model requires a gradient")
    given = () if source.train_step is None else (OWN_STEP,)
    return WholeStep(model, source, spec), _batch(source, spec, dtype), given


def _batch(source: ModelSource, spec: JobSpec, dtype: torch.dtype | None) -> Any:
    if source.batch is None:
        raise UsageError("the target says nothing of its inputs", hint="define batch(batch_size) or give --input")
    with user_code("batch()"):
        made = source.batch(spec.batch_size, spec.seq_len or source.default_seq_len)
    # AOTAutograd sees into dictionaries, not into a library's own mappings.
    made = dict(made) if isinstance(made, Mapping) else made
    return made if dtype is None else cast_floats(made, dtype)
