"""What is known where routers choose experts: how many tokens each gets, in counts, in masks and after an exchange."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import torch

from memplan.seam.fake import unset_fake_temporarily
from memplan.tracing.knowledge import NOTHING, Knowledge, Shares, is_choice
from memplan.tracing.routing import MOST_EXPERTS

if TYPE_CHECKING:
    from memplan.tracing.guesses import Guesses


def counted_classes(values: "Guesses", indices: torch.Tensor, result: torch.Tensor) -> Knowledge:
    """One count for each class, and zeros for those that do not occur."""
    loads = values.loads(indices)
    if loads is not None and len(loads) <= result.numel():
        values.assume_routing()
        return counts_of(loads, result)
    values.assume_balance(is_routed=is_choice(values.knowledge_of(indices)))
    return evenly(indices.numel(), result)


def counts_of(counts: Sequence[float], result: torch.Tensor) -> Knowledge:
    """These counts as the elements of a result, and zeros behind them."""
    padded = [*map(round, counts), *(0 for _ in range(result.numel() - len(counts)))]
    with unset_fake_temporarily():
        return Knowledge(value=torch.tensor(padded, dtype=result.dtype).reshape(result.shape))


def evenly(total: int, result: torch.Tensor, classes: int | None = None) -> Knowledge:
    """Equal counts as the elements of a result, of all classes or the first ones."""
    used = classes or result.numel()
    each, rest = divmod(total, used)
    return counts_of([each + (index < rest) for index in range(used)], result)


def told_apart(values: "Guesses", sides: Sequence[Any], result: torch.Tensor) -> Knowledge | None:
    """``index == k``, ``index == arange(E)`` where classes are not all as frequent; None where they are, or unknown."""
    indices, other = sides
    numbers = numbers_of(values, other)
    loads = values.loads(indices) if numbers is not None and isinstance(indices, torch.Tensor) else None
    if loads is None or numbers is None:
        return None
    each = tuple((loads[number] if 0 <= number < len(loads) else 0) / indices.numel() for number in numbers)
    if len(each) == 1:
        return Knowledge(density=each[0], is_routed=True)
    first = result.dim() - other.dim()
    return by_class(each, next(dim for dim, size in enumerate(other.shape, first) if size > 1))


def numbers_of(values: "Guesses", other: Any) -> list[int] | None:
    """What indices are compared with: one number, or known ones along one dimension; None for anything else."""
    if not isinstance(other, torch.Tensor):
        return [other] if isinstance(other, int) else None
    known = values.value_of(other)
    if known is None or max(other.shape, default=1) != other.numel():
        return None
    with unset_fake_temporarily():
        return [int(each) for each in known.flatten().tolist()]


def by_class(each: tuple[float, ...], axis: int) -> Knowledge:
    """A mask of these densities along a dimension."""
    return Knowledge(density=sum(each) / len(each), shares=Shares(axis=axis, each=each), is_routed=True)


def sorted_of(known: Knowledge) -> Knowledge:
    """Of indices in order as many are each class as before."""
    return Knowledge(classes=known.classes, top=known.top, tally=known.tally)


def repeated(values: "Guesses", args: tuple[Any, ...], _: Mapping[str, Any], __: Any) -> Knowledge:
    """``repeat_interleave`` of known counts: each position as often as its count says."""
    counts = values.value_of(args[0])
    if counts is None or counts.numel() > MOST_EXPERTS:
        return NOTHING
    with unset_fake_temporarily():
        return Knowledge(classes=max(1, counts.numel()), tally=tuple(map(int, counts.tolist())))


def looked_up(values: "Guesses", args: tuple[Any, ...], _: Mapping[str, Any], __: Any) -> Knowledge:
    """Small integers that are known, at positions whose counts are known: the experts of tokens that arrive."""
    numbers, tally = values.value_of(args[0]), values.knowledge_of(args[2]).tally
    if numbers is None or not tally or numbers.dim() != 1 or numbers.is_floating_point():
        return NOTHING
    with unset_fake_temporarily():
        if len(tally) != len(numbers) or not 0 <= int(numbers.min()) <= int(numbers.max()) < MOST_EXPERTS:
            return NOTHING
        summed = torch.bincount(numbers.long(), weights=torch.tensor(tally, dtype=torch.float64))
        return Knowledge(classes=len(summed), tally=tuple(map(int, summed.tolist())))


def gathered(_: "Guesses", known: Knowledge, ranks: int) -> Knowledge:
    """What is known of all ranks' parts, one below the other, where each is like this one's."""
    if known.value is not None:
        with unset_fake_temporarily():
            return Knowledge(value=torch.cat([known.value] * ranks))
    tally = known.tally and tuple(ranks * each for each in known.tally)
    shares = None if known.shares is not None and known.shares.axis == 0 else known.shares
    return replace(known, tally=tally, shares=shares, drawn=None, last=None)
