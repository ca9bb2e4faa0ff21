"""What DeepSpeed's stage 3 does by way of a view for each rank of each parameter, done with the same allocations alone.

A view costs no memory, but in a trace as much time as any op: with hundreds of ranks, minutes.
"""

import importlib
import math
from collections.abc import Callable, Sequence
from typing import Any

import torch
import torch.distributed

from memplan.seam.replace import Replacement, attribute


def few_views() -> tuple[Replacement, ...]:
    """The replacements (deepspeed/runtime/zero/partition_parameters.py, runtime/comm/coalesced_collectives.py)."""
    waiting = "deepspeed.runtime.zero.partition_parameters.AllGatherCoalescedHandle.wait"
    return (
        Replacement(waiting, _waiting(attribute(waiting))),
        Replacement("deepspeed.runtime.zero.stage3.reduce_scatter_coalesced", _reduce_scatter),
    )


def _waiting(original: Callable[..., None]) -> Callable[..., None]:
    def wait(handle: Any, handle_dependency: bool = True) -> None:
        if handle.complete or handle.quantization:
            original(handle, handle_dependency)
            return
        handle.allgather_handle.wait()
        status = importlib.import_module("deepspeed.runtime.zero.partition_parameters").ZeroParamStatus
        for parameter in handle.params:
            # The original concatenates the parts that the ranks sent.
            whole = handle.partitions[0].new_empty(parameter.ds_numel)
            parameter.data = whole.view(parameter.ds_shape).to(parameter.ds_tensor.dtype)
            parameter.ds_status = status.AVAILABLE
        handle.complete = True
        if not handle_dependency:
            type(handle).data_buffer.append(handle.partitions)

    return wait


def _reduce_scatter(tensors: Sequence[torch.Tensor], group: Any = None) -> list[torch.Tensor]:
    """``reduce_scatter_coalesced``: this rank's part of each tensor, views of one buffer of all parts of all."""
    rank, ranks = torch.distributed.get_rank(group), torch.distributed.get_world_size(group)
    parts = [math.ceil(tensor.numel() / ranks) for tensor in tensors]
    size, given = sum(parts) * ranks, sum(tensor.numel() for tensor in tensors)
    if len(tensors) == 1 and size == given:
        whole = tensors[0].view(-1)
    else:
        # What parts are padded with lives until the end.
        padding = tensors[0].new_empty(size - given)  # noqa: F841 - the name keeps it alive
        whole = tensors[0].new_empty(size)
    whole.div_(ranks)
    own = whole.narrow(0, rank * sum(parts), sum(parts))
    offsets = [sum(parts[:index]) for index in range(len(parts))]
    lengths = [max(0, min(part, tensor.numel() - rank * part)) for part, tensor in zip(parts, tensors, strict=True)]
    return [own.narrow(0, offset, length) for offset, length in zip(offsets, lengths, strict=True)]
