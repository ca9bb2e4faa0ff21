"""Data parallelism around a step that may be done again: local until all ranks have come through, then averaged."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.fsdp import FullyShardedDataParallel
from torch.distributed.tensor import DTensor
from torch.nn.parallel import DistributedDataParallel

from memplan.errors import UsageError
from memplan.runtime.adaptive.ranks import Ranks
from memplan.seam.tensors import foreach_div_


def refuse_meeting_ranks(module: nn.Module) -> None:
    """Refuse a module whose ranks meet in forward or backward: one that runs out of memory leaves the others waiting.

    Raises:
        UsageError: Its parameters are sharded, or its batch norms synchronised.
    """
    hint = "choose the size before: `memplan batch`, or find_batch in a job of its own, and accumulate as usual"
    if any(isinstance(each, FullyShardedDataParallel) for each in module.modules()):
        raise UsageError("FSDP gathers parameters inside of a step: a rank that dies there cannot go back", hint=hint)
    if any(isinstance(each, DTensor) for each in module.parameters()):
        raise UsageError("ranks share parameters (DTensor): one that dies inside of a step cannot go back", hint=hint)
    if any(isinstance(each, nn.SyncBatchNorm) for each in module.modules()) and _world() > 1:
        raise UsageError("SyncBatchNorm meets the other ranks inside of a step, which cannot go back", hint=hint)


@contextmanager
def local(module: nn.Module) -> Iterator[None]:
    """Keep DistributedDataParallel from meeting the other ranks; any other module is left alone."""
    if not isinstance(module, DistributedDataParallel):
        yield
        return
    # Under ``no_sync`` it would still send rank 0's buffers around, once, before the very first forward.
    module.require_forward_param_sync = False
    with module.no_sync():
        yield


def average_gradients(parameters: Sequence[torch.Tensor], ranks: Ranks) -> None:
    """Average ``.grad`` over the ranks in place. One that is missing counts as 0, unless it is missing on all.

    The parameters are the same on all ranks, in the same order.

    Raises:
        MemplanError: The other ranks did not come.
    """
    missing = ranks.minimum([int(parameter.grad is None) for parameter in parameters])
    used = [parameter for parameter, is_missing in zip(parameters, missing, strict=True) if not is_missing]
    gradients: list[torch.Tensor] = []
    for parameter in used:
        if parameter.grad is None:
            parameter.grad = torch.zeros_like(parameter)
        gradients.append(parameter.grad)
    # Each on its own, in place: buckets would take memory where there is least of it.
    pending = [dist.all_reduce(gradient, group=ranks.group, async_op=True) for gradient in gradients]
    for work in pending:
        work.wait()
    if gradients:
        foreach_div_(gradients, ranks.count)


def _world() -> int:
    return dist.get_world_size() if dist.is_initialized() else 1
