"""Batches cut into micro-batches: tensors along their first dimension, in dicts, lists and tuples of any depth."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import pairwise
from typing import Any

import torch

from memplan.errors import UsageError


def samples_of(batch: Any) -> int:
    """How many samples a batch has: the first dimension of its tensors.

    Raises:
        UsageError: There is no tensor, or they differ.
    """
    sizes = {tensor.shape[0] for tensor in _tensors(batch) if tensor.dim()}
    if len(sizes) != 1:
        found = f"tensors whose first dimensions are {sorted(sizes)}" if sizes else "no tensor with a first dimension"
        raise UsageError(
            f"a batch cannot be split by samples: it has {found}",
            hint="pass split=, a function of batch and size that yields micro-batches, and samples=, one that counts",
        )
    return sizes.pop()


def split_batch(batch: Any, size: int) -> Iterator[Any]:
    """Cut a batch into parts of nearly the same size.

    Args:
        batch: Tensors ``[samples, …]``, alone or in dicts (any mapping comes out as one), lists and tuples; all else,
            scalars included, goes into every part.
        size: Samples at most.

    Yields:
        Parts in order: views, nothing is copied.

    Raises:
        UsageError: There is no tensor, or their first dimensions differ.
    """
    samples = samples_of(batch)
    count = max(1, -(-samples // size))
    edges = [samples * part // count for part in range(count + 1)]
    for first, last in pairwise(edges):
        yield _cut(batch, slice(first, last))


def shares_of(parts: Sequence[Any], weight: Callable[[Any], float | torch.Tensor]) -> Iterator[tuple[Any, float]]:
    """Micro-batches and their shares of the whole weight: what the mean of each counts in the mean of all.

    Parts of weight 0 are left out: a mean over nothing is NaN. If the whole batch is like that, it is the user's.
    """
    weights = [float(weight(part)) for part in parts]
    whole = sum(weights)
    for part, each in zip(parts, weights, strict=True):
        if each or not whole:
            yield part, each / whole if whole else 1.0


def _cut(batch: Any, rows: slice) -> Any:
    match batch:
        case torch.Tensor():
            return batch[rows] if batch.dim() else batch
        case Mapping():
            return {key: _cut(value, rows) for key, value in batch.items()}
        case tuple() if hasattr(batch, "_fields"):
            return type(batch)(*(_cut(value, rows) for value in batch))
        case list() | tuple():
            return type(batch)(_cut(value, rows) for value in batch)
        case _:
            return batch


def _tensors(batch: Any) -> Iterator[torch.Tensor]:
    match batch:
        case torch.Tensor():
            yield batch
        case Mapping():
            for value in batch.values():
                yield from _tensors(value)
        case list() | tuple():
            for value in batch:
                yield from _tensors(value)
        case _:
            pass
