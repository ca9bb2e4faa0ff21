"""The training loop of a pipeline: a schedule of ``torch.distributed.pipelining`` does forward, loss and backward."""

import inspect
from collections.abc import Iterator, Mapping
from typing import Any

import torch
from torch import nn
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.pipelining import PipelineStage, Schedule1F1B, ScheduleGPipe, ScheduleInterleaved1F1B
from torch.nn.parallel import DistributedDataParallel

from memplan.errors import UsageError
from memplan.job.parallel import Parallel
from memplan.tracing.loop import Parts, optimizers_of, update
from memplan.tracing.place import batch_tensors
from memplan.tracing.sharding import world
from memplan.tracing.sharding.pipeline import Run, running, stage_count

_SCHEDULES: Mapping[str, Any] = {
    "gpipe": ScheduleGPipe,
    "1f1b": Schedule1F1B,
    "interleaved": ScheduleInterleaved1F1B,
}


class _KnownStage(PipelineStage):
    """A stage whose tensors are known beforehand.

    Stages agree by messages whether they are: here no message arrives.
    """

    def _warmup_forward_vote(self, has_backward: bool, received_acc: Any = None) -> Any:
        del has_backward, received_acc
        return _Agreed()

    def _warmup_backward_result(self, received_result: Any = None) -> Any:
        return received_result or _Agreed()


class _Agreed:
    def item(self) -> int:
        """What the vote ends with where every stage knows its tensors."""
        return 1


def training(parts: Parts, parallel: Parallel) -> Iterator[None]:
    """Run a schedule, optimizer step and ``zero_grad()``, again and again; yields after every optimizer step.

    The model is one ``Stage`` or a ``ModuleList`` of them, perhaps wrapped.
    """
    schedule = _schedule(parts, parallel)
    whole = {"return_outputs": False} if "return_outputs" in inspect.signature(schedule.step).parameters else {}
    batch = None
    losses: list[torch.Tensor] = []
    while True:
        for _ in parts.micro_batches():
            batch = None
            batch = parts.next_batch()
            with parts.around(batch):
                schedule.step(batch=batch, target=_any_tensor(batch), losses=losses, **whole)
        update(parts)
        for optimizer in optimizers_of(parts.optimizer):
            optimizer.zero_grad()
        yield


def stages_in(model: nn.Module) -> list[nn.Module]:
    """The stages of this rank, in order, each perhaps wrapped."""
    return list(model) if isinstance(model, nn.ModuleList) else [model]


def _schedule(parts: Parts, parallel: Parallel) -> Any:
    mesh = world.current().mesh
    run = running(parts.call, parts.loss, parts.autocast)
    stages = [_pipeline_stage(stage, run, parallel, mesh) for stage in stages_in(parts.model)]
    kind = _SCHEDULES[parallel.schedule]
    try:
        return kind(
            stages if parallel.schedule == "interleaved" else stages[0],
            n_microbatches=parallel.step_batches,
            loss_fn=_loss(parts),
        )
    except ValueError as error:
        hint = f"give micro={2 * parallel.pipeline}, or another multiple of pp"
        raise UsageError(str(error), where="--parallel micro", hint=hint) from error


def _pipeline_stage(module: nn.Module, run: Run, parallel: Parallel, mesh: DeviceMesh) -> PipelineStage:
    stage: Any = module.module if isinstance(module, DistributedDataParallel) else module
    stage.run = run
    return _KnownStage(
        module,
        stage.index,
        stage_count(parallel),
        torch.device(mesh.device_type),
        input_args=() if stage.received is None else (stage.received.example(),),
        output_args=tuple(signature.example() for signature in stage.sent),
        group=mesh["pp"].get_group(),
    )


def _loss(parts: Parts) -> Any:
    """The last stage's first result is the loss already."""

    def loss(results: tuple[torch.Tensor, ...], _: torch.Tensor) -> torch.Tensor:
        scaled = results[0] / parts.accumulate if parts.accumulate > 1 else results[0]
        return scaled if parts.scaler is None else parts.scaler.scale(scaled)

    return loss


def _any_tensor(batch: Any) -> torch.Tensor:
    """Schedules want a target to cut in micro-batches; what is compared is in the batch."""
    return next(tensor for _, tensor in batch_tensors(batch))
