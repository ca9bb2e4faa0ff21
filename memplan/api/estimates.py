"""``memplan.estimate(model, batch, …)``: what ``memplan estimate`` answers, of objects of the running process."""

import html
from collections.abc import Callable
from dataclasses import dataclass, fields, replace
from typing import TYPE_CHECKING, Any

from memplan.api.jobs import DEFAULT_GPU, LiveJob, job_of, said
from memplan.hardware.catalog import list_profiles
from memplan.hardware.profile import GpuProfile
from memplan.measure.records import Estimate, RecordedEstimate

if TYPE_CHECKING:
    import torch

TIMEOUT = 600.0
"""Seconds that the code of a target that is named may take."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LiveEstimate(Estimate):
    """An estimate that shows itself: as text where it is printed, as a page in a notebook."""

    recorded: RecordedEstimate
    """The same with the digest of its history."""

    def __str__(self) -> str:
        """Return the report that ``memplan estimate`` prints."""
        from memplan.report.estimate.text import render

        return "\n".join(line.plain for line in render([self.recorded.estimate]))

    def _repr_html_(self) -> str:
        """Return the page of ``-f html`` in a frame of its own, which is what notebooks show."""
        from memplan.report.html.estimate import render

        page = html.escape(render([self.recorded]), quote=True)
        return f'<iframe srcdoc="{page}" style="width: 100%; height: 40em; border: 0"></iframe>'


def estimate(
    model: "torch.nn.Module | Callable[[], torch.nn.Module] | str",
    batch: Any = None,
    *,
    loss: "Callable[..., Any] | str | None" = None,
    optimizer: Any = None,
    step: Callable[..., Any] | None = None,
    gpu: str = DEFAULT_GPU,
    alloc_conf: str = "",
    **options: Any,
) -> LiveEstimate:
    """Predict the peak memory of one training step, without a GPU and without touching the data of anything given.

    Args:
        model: A model as it is, on any device; a function that makes one; or a target as ``memplan estimate`` takes it
            (``"model.py"``, ``"gpt2"``), whose code runs in a child process.
        batch: A batch (tensor, dict of keywords, tuple of positional items; its data is not read), or a function
            ``(batch_size)`` or ``(batch_size, seq_len)`` that makes one; None: worked out from the model.
        loss: ``(output, batch)`` → scalar; one of torch's losses (``nn.CrossEntropyLoss()``), which is given the last
            item of the batch; or ``"cross-entropy"``, ``"mse"``, ``"sum"``. None: the output's own, else worked out.
        optimizer: An optimizer of the model's parameters (its settings count, its state does not), a function of
            parameters, or a name that ``--optimizer`` takes.
        step: ``(model, optimizer, batch)``: a whole step of your own in place of forward, loss, backward and optimizer.
        gpu: A profile, as ``memplan gpus`` lists them.
        alloc_conf: Value of ``PYTORCH_CUDA_ALLOC_CONF``.
        options: Further options of the job, called as those of ``memplan estimate``: ``precision="bf16-mixed"``,
            ``checkpoint="full"``, ``grad_accum=4``, ``parallel="fsdp=8"``.

    Returns:
        The estimate; ``print()`` shows the report, a notebook the page.

    Raises:
        UsageError: Something that was given cannot be; every option is named.
        EstimateError: The step cannot be traced; the message has the line and what to do.
    """
    parts = {"loss": loss, "optimizer": optimizer, "step": step}
    with job_of(model, batch, **parts, gpu=gpu, options=options) as job:
        return shown(_recorded(job, alloc_conf), job.name)


def gpus() -> tuple[GpuProfile, ...]:
    """Return every GPU profile, as ``memplan gpus`` lists them."""
    return list_profiles()


def _recorded(job: LiveJob, alloc_conf: str) -> RecordedEstimate:
    if job.is_live:
        from memplan.measure.local import record_here

        [recorded] = record_here(job.spec, [job.profile], alloc_conf=alloc_conf, whole=False)
        return recorded
    from memplan.measure.compose import estimate as estimated

    [recorded] = estimated(job.spec, [job.profile], detail="timelines", alloc_conf=alloc_conf, timeout=TIMEOUT)
    return recorded


def shown(recorded: RecordedEstimate, name: str) -> LiveEstimate:
    """Return an estimate that shows itself, of a job with this name."""
    provenance = {field: said(field, source) for field, source in recorded.estimate.provenance.items()}
    recorded = replace(recorded, estimate=replace(recorded.estimate, target=name, provenance=provenance))
    return LiveEstimate(
        recorded=recorded, **{field.name: getattr(recorded.estimate, field.name) for field in fields(Estimate)}
    )
