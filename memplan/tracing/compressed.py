"""``--compress-activations``: a what-if. What autograd saves is held in a smaller form until backward asks for it.

* ``int8``: a byte an element and a scale for each row, by its largest element (ActNN, Chen et al. 2021, goes down to 2
  bits);
* ``topk``: the tenth of the elements that is largest, with 32-bit positions.

Plain torch does it, so that temporaries are there too; a fused kernel would take less of these. Memory alone is told:
what either does to the gradients is another question.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import torch
from torch.autograd.graph import saved_tensors_hooks

from memplan.job.spec import Compression
from memplan.tracing.offloaded import Call, staying

KEPT = 0.1
"""Share of the elements that ``topk`` keeps; within what papers on sparse training report."""
_LARGEST = 127
"""Of int8, without -128, so that zero stays zero."""


class _Rows(NamedTuple):
    codes: torch.Tensor
    scales: torch.Tensor


class _Largest(NamedTuple):
    values: torch.Tensor
    positions: torch.Tensor
    shape: torch.Size


def _rows(tensor: torch.Tensor) -> _Rows:
    scales = tensor.abs().amax(-1, keepdim=True).clamp_(min=torch.finfo(tensor.dtype).tiny).div_(_LARGEST)
    return _Rows((tensor / scales).round_().to(torch.int8), scales)


def _largest(tensor: torch.Tensor) -> _Largest:
    flat = tensor.reshape(-1)
    positions = flat.abs().topk(max(1, int(KEPT * flat.numel())), sorted=False).indices
    return _Largest(flat[positions], positions.to(torch.int32), tensor.shape)


_COMPRESS: dict[Compression, Callable[[torch.Tensor], Any]] = {"int8": _rows, "topk": _largest}


def _unpack(packed: Any) -> torch.Tensor:
    match packed:
        case _Rows(codes, scales):
            return codes.to(scales.dtype).mul_(scales)
        case _Largest(values, positions, shape):
            flat = values.new_zeros(shape.numel())
            return flat.index_put_((positions.long(),), values).view(shape)
        case _:
            stayed: torch.Tensor = packed
            return stayed


def compressing(call: Call, how: Compression) -> Call:
    """A call of the model whose saved tensors are compressed.

    Args:
        call: Calls the model on a batch.
        how: ``int8`` or ``topk``.
    """
    compress = _COMPRESS[how]

    def compressed(model: torch.nn.Module, batch: Any) -> Any:
        stays = staying(model)

        def pack(tensor: torch.Tensor) -> Any:
            return tensor if stays(tensor) or not tensor.is_floating_point() else compress(tensor.detach())

        with saved_tensors_hooks(pack, _unpack):
            return call(model, batch)

    return compressed
