"""Tensors that leave torch: arrays of NumPy, pickles, files, shared memory. Stand-ins go: fake ones have no elements.

An array keeps the memory of its tensor alive, as a real one does. Nothing is written to files: a checkpoint of fake
tensors would take the place of a real one.
"""

import weakref
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import torch

from memplan.seam.fake import FakeTensor, unset_fake_temporarily
from memplan.seam.modes import disable_current_modes
from memplan.seam.patches.world import FAKE_TENSOR
from memplan.seam.replace import Replacement, replaced
from memplan.tracing.guesses import Guesses
from memplan.tracing.knowledge import Knowledge

ONES = "arrays read from tensors (.numpy()) hold ones"
NOT_SAVED = "torch.save() writes nothing: it would overwrite real files"
LARGE = 1 << 22
"""Elements beyond which an array is one element shown many times, and cannot be written to.

Chosen so that an array of doubles takes no more than 32 MiB of real memory."""


@contextmanager
def stand_ins(values: Guesses) -> Iterator[None]:
    """Let fake tensors become arrays and pickles while the context lasts.

    Args:
        values: What is known of tensors, and who is told what was assumed.
    """

    def numpy(tensor: FakeTensor, *, force: bool = False) -> Any:
        if tensor.requires_grad and not force:
            raise RuntimeError("Can't call numpy() on Tensor that requires grad. Use tensor.detach().numpy() instead.")
        array = _array(tensor, values)
        kept = weakref.finalize(array, _nothing, tensor.untyped_storage())
        kept.atexit = False
        return array

    def save(*_: object, **__: object) -> None:
        values.assume(NOT_SAVED)

    def share_memory(tensor: FakeTensor) -> FakeTensor:
        # It moves on the host alone, from where torch counts it to where nobody does.
        return tensor

    table = (
        Replacement(f"{FAKE_TENSOR}.numpy", numpy),
        Replacement(f"{FAKE_TENSOR}.share_memory_", share_memory),
        Replacement(f"{FAKE_TENSOR}.__reduce_ex__", _reduced),
        Replacement("torch.save", save),
    )
    with replaced(table):
        yield


def _nothing(_: object) -> None:
    """What keeps its argument until it is called."""


def _array(tensor: torch.Tensor, values: Guesses) -> Any:
    known = values.knowledge_of(tensor)
    elements = known.value if known.value is not None else known.drawn
    if elements is not None:
        values.read_drawn(known)
        with disable_current_modes():  # The array stands for the tensor's own memory, which is counted.
            return elements.detach().clone().numpy()
    values.assume(ONES)
    with unset_fake_temporarily():
        kind = torch.empty(0, dtype=tensor.dtype).numpy().dtype
    shape, element = tuple(tensor.shape), _element(tensor, known, values)
    if tensor.numel() > LARGE:
        return np.broadcast_to(np.array(element, kind), shape)
    return np.full(shape, element, kind)


def _element(tensor: torch.Tensor, known: Knowledge, values: Guesses) -> int:
    if tensor.dtype is torch.bool:
        values.decisions.account.ways["other"] = None
        return int(values.decisions.way != "other" and (known.density is None or known.density >= 0.5))
    return min(1, known.classes - 1) if known.classes else 1


def _reduced(tensor: FakeTensor, _: object) -> Any:
    """A pickle makes a tensor of the same kind again, as a copy of a real one."""
    options = {"dtype": tensor.dtype, "requires_grad": tensor.requires_grad and tensor.is_leaf}
    return _made_again, (tuple(tensor.shape), tensor.stride(), options)


def _made_again(shape: tuple[int, ...], stride: tuple[int, ...], options: dict[str, Any]) -> torch.Tensor:
    return torch.empty_strided(shape, stride, **options)
