"""Context parallelism: ranks share every sequence, and pass keys and values around a ring (torch's own context)."""

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import replace
from typing import Any

import torch
from torch import nn
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.tensor.experimental import context_parallel

from memplan.errors import UsageError
from memplan.job.spec import JobSpec
from memplan.tracing.place import batch_tensors
from memplan.tracing.sharding import world
from memplan.tracing.sharding.ring import few_turns, one_part_at_a_time


def padded(spec: JobSpec) -> JobSpec:
    """Return the job with its sequences padded, as trainers do it, to the next length that its ranks can share.

    Causal attention is balanced by giving each rank a part from the front and one from the back.
    """
    parts = 2 * spec.parallel.context
    return spec if spec.seq_len is None else replace(spec, seq_len=-(-spec.seq_len // parts) * parts)


def shard(model: nn.Module, spec: JobSpec, mesh: DeviceMesh) -> nn.Module:
    """Say what is done; the model itself stays as it is."""
    del mesh
    ranks = spec.parallel.context
    world.current().assume(f"each of {ranks} ranks has 1/{ranks} of every sequence; keys and values go around a ring")
    return model


def sequence_shared(spec: JobSpec, seq_len: int | None) -> Callable[[Any], AbstractContextManager[None]]:
    """The context of forward, loss and backward on a batch, in which this rank has its part of the sequence.

    What has another second dimension than a whole sequence's tokens is left whole; the batch's tensors are cut in
    place, as torchtitan lets ``context_parallel`` do it. ``no_fold`` lets all turns of the ring run, and so do
    ``few_micro_batches``: of turns within turns nobody could say what they stand for.
    """
    here = world.current()
    mesh = here.mesh["cp"]
    may_be_few = not (spec.no_fold or spec.few_micro_batches) and spec.compile == "eager" and mesh.get_local_rank() == 0

    @contextmanager
    def context(batch: Any) -> Iterator[None]:
        sequences = [tensor for _, tensor in batch_tensors(batch) if tensor.dim() > 1 and tensor.shape[1] == seq_len]
        if not sequences:
            raise UsageError("no tensor of the batch has the sequence as its second dimension", where="--parallel cp")
        shared: AbstractContextManager[None] = context_parallel(
            mesh,
            buffers=sequences,
            buffer_seq_dims=[1] * len(sequences),
            no_restore_buffers=set[torch.Tensor](sequences),
        )
        few = few_turns(here.recorder) if may_be_few else nullcontext()
        with shared, one_part_at_a_time(), few:
            yield

    return context
