"""A replay buffer: one preallocated tensor for each tensor of a sample, as torchrl's ``LazyTensorStorage`` has them."""

from functools import partial
from typing import Any

import torch

from memplan.errors import UsageError
from memplan.job.spec import JobSpec
from memplan.tracing.place import batch_tensors
from memplan.tracing.surroundings import Surroundings


def keep(batch: Any, spec: JobSpec, surroundings: Surroundings) -> None:
    """Make the buffer that the job draws its batches from.

    Args:
        batch: One of them; the first dimension of its tensors counts samples.
        spec: The job.
        surroundings: Where it runs.

    Raises:
        UsageError: A tensor of the batch is not made of samples.
    """
    samples = spec.batch_size * spec.parallel.step_batches
    for name, tensor in batch_tensors(batch):
        if not tensor.dim() or tensor.shape[0] != samples:
            what = f"{name} has shape {list(tensor.shape)}, which does not begin with the {samples} samples of a batch"
            raise UsageError(what, where="--replay-buffer", hint="let batch() put samples in the first dimension")
        make = partial(torch.empty, (spec.replay_buffer, *tensor.shape[1:]), dtype=tensor.dtype)
        surroundings.keep(f"replay_buffer.{name}", make, on_host=spec.replay_buffer_on == "host")
    surroundings.assume(
        f"the replay buffer holds {spec.replay_buffer} samples of the batch's shapes on the {spec.replay_buffer_on}, "
        "preallocated, and nothing else of a transition"
    )
