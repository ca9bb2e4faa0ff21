"""Answers to ops whose results fake tensors cannot tell: numbers read from tensors, shapes that depend on values."""

from collections.abc import Callable, Mapping
from functools import cache
from math import ceil, prod
from typing import TYPE_CHECKING, Any

import torch

from memplan.seam.fake import unset_fake_temporarily
from memplan.seam.pytree import tree_map
from memplan.tracing.asking import is_made_whole, place_of_program
from memplan.tracing.integers import readable
from memplan.tracing.knowledge import NOTHING, SMALL, Knowledge, is_choice
from memplan.tracing.nested import tensors_in

if TYPE_CHECKING:
    from memplan.tracing.guesses import Guesses

aten = torch.ops.aten

Answer = Callable[["Guesses", Any, tuple[Any, ...], Mapping[str, Any]], Any]
"""(values, op, args, kwargs) → the op's result."""


def _item(values: "Guesses", _: Any, args: tuple[Any, ...], __: Mapping[str, Any]) -> Any:
    tensor = args[0]
    value = values.value_of(tensor)
    if value is not None and values.knowledge_of(tensor).is_assumed:
        if (heard := values.decisions.heard()) is not None:
            return heard
        # Optimizers that are given the flag itself make their states whatever it says: they read nothing here.
        values.decisions.account.ways["idle"] = None
    if value is None:
        value = getattr(tensor, "constant", None)
    if value is not None:
        with unset_fake_temporarily():
            return value.item()
    drawn = values.knowledge_of(tensor).drawn
    if drawn is not None:
        values.read_drawn(values.knowledge_of(tensor))
        with unset_fake_temporarily():
            return drawn.item()
    if tensor.dtype is torch.bool:
        return _condition(values, values.knowledge_of(tensor))
    if not tensor.is_complex() and (not tensor.is_floating_point() or is_made_whole()):
        number = values.decisions.integer(readable(values.knowledge_of(tensor)))
        return float(number) if tensor.is_floating_point() else number
    values.assume("numbers read from tensors (.item()) are 1")
    return complex(values.decisions.falling()) if tensor.is_complex() else values.decisions.falling()


def _condition(values: "Guesses", known: "Knowledge") -> bool:
    if known.density is not None and not known.is_assumed:
        # One element of a mask: what most of them are.
        return known.density >= 0.5
    return values.decisions.holds(known.density is None or known.density >= 0.5)


def _nonzero(values: "Guesses", _: Any, args: tuple[Any, ...], __: Mapping[str, Any]) -> Any:
    return torch.empty((values.selected(args[0]), args[0].dim()), dtype=torch.int64)


def _indexed(values: "Guesses", func: Any, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Any:
    """``x[mask]``: a mask is as many index vectors as it has dimensions (``expandTensors``, ATen IndexingUtils.h)."""
    indices: list[torch.Tensor | None] = []
    for index in args[1]:
        values.routes |= index is not None and is_choice(values.knowledge_of(index))
        if index is not None and index.dtype in (torch.bool, torch.uint8):
            count = values.selected(index)
            indices += [torch.empty(count, dtype=torch.int64) for _ in range(index.dim())]
        else:
            indices.append(index)
    return func(args[0], indices, *args[2:], **kwargs)


def _masked_select(values: "Guesses", _: Any, args: tuple[Any, ...], __: Mapping[str, Any]) -> Any:
    shape = torch.broadcast_shapes(args[0].shape, args[1].shape)  # type: ignore[no-untyped-call]
    share = values.selected(args[1]) / max(args[1].numel(), 1)
    return torch.empty(ceil(prod(shape) * share), dtype=args[0].dtype)


def _of_known(values: "Guesses", func: Any, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Any:
    """Empty results of the sizes that elements decide, where these are known and small; None where they are not.

    What the elements of the results are is learnt as of any other op.
    """
    elements = {id(tensor): values.value_of(tensor) for tensor in tensors_in([*args, *kwargs.values()])}
    if any(each is None or each.numel() > SMALL for each in elements.values()):
        return None
    with unset_fake_temporarily():
        real_args, real_kwargs = tree_map(lambda each: elements.get(id(each), each), (args, dict(kwargs)))
        found = func(*real_args, **real_kwargs)
    return tree_map(lambda each: torch.empty(each.shape, dtype=each.dtype), found)


def _bincount(values: "Guesses", func: Any, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Any:
    if (found := _of_known(values, func, args, kwargs)) is not None:
        return found
    least = kwargs.get("minlength", args[2] if len(args) > 2 else 0)
    weights = kwargs.get("weights", args[1] if len(args) > 1 else None)
    classes = values.knowledge_of(args[0]).classes or least
    dtype = torch.int64 if weights is None else weights.dtype
    return torch.empty(max(least, classes, 1), dtype=dtype)


def _unique(values: "Guesses", func: Any, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Any:
    """Unique values: all elements, or all classes, are (upper bound); consecutive runs: there is one.

    Where the program fails with so many (torchmetrics counts labels), there is one as well.
    """
    if (found := _of_known(values, func, args, kwargs)) is not None:
        return found
    source = args[0]
    if func is aten.unique_consecutive.default:
        values.assume("runs of equal values are one run")
        count = 1
    else:
        count = min(source.numel(), values.knowledge_of(source).classes or source.numel())
        values.assume("values counted by unique() are all different")
        if count > 1 and not values.decisions.holds(default=True):
            count = 1
    inverse = torch.empty(source.shape, dtype=torch.int64)
    return torch.empty(count, dtype=source.dtype), inverse, torch.empty(count, dtype=torch.int64)


def _repeat_interleave(values: "Guesses", func: Any, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Any:
    size = kwargs.get("output_size")
    known = values.value_of(args[0])
    if size is None and known is not None:
        with unset_fake_temporarily():
            size = int(known.sum())
    if size is None:
        values.assume("repeat counts read from tensors are 1")
        size = args[0].numel()
    return func(args[0], output_size=size)


def _grouped_mm(_: "Guesses", func: Any, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Any:
    """Its shape function takes bf16 alone; for other types kernels run one ``mm`` a group (GroupedBlas.cpp)."""
    first, second = (operand.to(torch.bfloat16) for operand in args[:2])
    return func(first, second, *args[2:], **kwargs).to(args[0].dtype)


def _packed(values: "Guesses", _: Any, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Any:
    """``pack_padded_sequence``: all steps of all sequences, and how many sequences each step has."""
    padded, lengths = args[:2]
    batch_first = args[2] if len(args) > 2 else kwargs.get("batch_first", False)
    known = values.value_of(lengths)
    longest = padded.shape[1 if batch_first else 0]
    if known is None:
        values.assume(f"padded sequences are all as long as the padding{place_of_program()}")
        values.decisions.account.ways["other"] = None
        longest = 1 if values.decisions.way == "other" else longest
    with unset_fake_temporarily():
        counts = torch.full((lengths.numel(),), longest) if known is None else known
        # Packed layers read these numbers in C++ (RNN.cpp PackedLayer): a fake tensor would have none.
        sizes = (counts.unsqueeze(0) > torch.arange(int(counts.max())).unsqueeze(1)).sum(1)
        total = int(counts.sum())
    return padded.new_empty((total, *padded.shape[2:])), sizes


def _aligned(values: "Guesses", _: Any, args: tuple[Any, ...], __: Mapping[str, Any]) -> Any:
    """``_ctc_loss`` whose lengths are tensors: losses, and one number per step and possible label (LossCTC.cpp)."""
    scores, targets, _, lengths = args[:4]
    known = values.value_of(lengths)
    if known is not None:
        with unset_fake_temporarily():
            longest = int(known.max())
    elif targets.dim() == 2:
        values.assume("target sequences of the CTC loss are as long as their padding")
        longest = targets.shape[1]
    else:
        values.assume("target sequences of the CTC loss are all equally long")
        longest = ceil(targets.numel() / max(lengths.numel(), 1))
    batch = scores.shape[1] if scores.dim() == 3 else 1
    losses = scores.new_empty((batch,) if scores.dim() == 3 else ())
    return losses, scores.new_empty((batch, scores.shape[0], 2 * longest + 1))


def _least_squares(values: "Guesses", _: Any, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Any:
    """``lstsq``: the solution is the upper part of what held the right sides (BatchLinearAlgebra.cpp)."""
    matrix, sides = args[:2]
    driver = kwargs.get("driver", args[3] if len(args) > 3 else None) or "gelsy"
    (rows, columns), batch = matrix.shape[-2:], matrix.shape[:-2]
    is_vector = sides.dim() < matrix.dim()
    width = 1 if is_vector else sides.shape[-1]
    whole = matrix.new_empty((*batch, width, max(rows, columns))).mT
    solution = whole.narrow(-2, 0, columns)
    has_residuals = rows > columns and driver != "gelsy"
    if has_residuals and driver != "gels":
        values.assume("matrices of least squares have full rank")
    residuals = torch.empty((*batch, width) if has_residuals else (0,), dtype=matrix.dtype.to_real())
    ranks = torch.empty((0,) if driver == "gels" else tuple(batch), dtype=torch.int64)
    least = (*batch, min(rows, columns)) if driver in {"gelsd", "gelss"} else (0,)
    spectrum = torch.empty(least, dtype=matrix.dtype.to_real())
    return solution.squeeze(-1) if is_vector else solution, residuals, ranks, spectrum


def _looked_up(values: "Guesses", func: Any, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Any:
    """An index beyond the table is an error on every device; fake tensors would not see it."""
    table, indices = args[0], args[1]
    known = values.knowledge_of(indices)
    last = known.last
    if known.value is not None and known.value.numel():
        with unset_fake_temporarily():
            last = int(known.value.max())
    if last is not None and last >= table.shape[0]:
        raise IndexError(f"index out of range in self: {last}, in an embedding of {table.shape[0]}")
    return values.results.run(func, args, kwargs)


def _same(values: "Guesses", func: Any, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> bool:
    """Compare two tensors: losses ask whether the gradient of their result is one, and then keep what they have."""
    sides = [_elements(values.knowledge_of(side), side) for side in args[:2]]
    if any(side is None for side in sides):
        return _condition(values, NOTHING)
    with unset_fake_temporarily():
        return bool(func(*sides, *args[2:], **kwargs))


def _elements(known: "Knowledge", of: torch.Tensor) -> torch.Tensor | None:
    """What a tensor is known to hold, a real one of its shape; None where nothing certain is known."""
    value = None if known.is_assumed else known.value
    with unset_fake_temporarily():
        if value is None and not known.is_assumed and known.density in (0.0, 1.0):
            value = torch.full((), known.density, dtype=of.dtype)
        return None if value is None else value.expand(of.shape)


def _boxes_left(values: "Guesses", _: Any, args: tuple[Any, ...], __: Mapping[str, Any]) -> Any:
    """Non-maximum suppression: which boxes hide which, data decide."""
    values.assume("non-maximum suppression keeps every box")
    values.decisions.account.ways["other"] = None
    return torch.empty(0 if values.decisions.way == "other" else args[0].shape[0], dtype=torch.int64)


def _overwritten(values: "Guesses", func: Any, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Any:
    """What an op writes into is its result."""
    del values, func, args
    return kwargs["out"]


ANSWERS: dict[Any, Answer] = {
    aten._local_scalar_dense.default: _item,
    aten.nonzero.default: _nonzero,
    aten.index.Tensor: _indexed,
    aten.masked_select.default: _masked_select,
    aten.bincount.default: _bincount,
    aten._unique2.default: _unique,
    aten.unique_consecutive.default: _unique,
    aten.repeat_interleave.Tensor: _repeat_interleave,
    aten._pack_padded_sequence.default: _packed,
    aten.embedding.default: _looked_up,
    aten._ctc_loss.Tensor: _aligned,
    aten.linalg_lstsq.default: _least_squares,
    aten.equal.default: _same,
    aten.allclose.default: _same,
}
"""Op → answer."""
if hasattr(aten, "_grouped_mm"):  # Not in torch 2.6.
    ANSWERS[aten._grouped_mm.default] = _grouped_mm
for _name in ("_scaled_mm", "_scaled_mm_v2"):
    # Inductor's code hands the result over; fake tensors know the product without that alone.
    if hasattr(aten, _name) and hasattr(getattr(aten, _name), "out"):
        ANSWERS[getattr(aten, _name).out] = _overwritten
OF_LIBRARIES: Mapping[str, Answer] = {"torchvision.nms.default": _boxes_left}
"""Name of an op that a library brings, which need not be there → answer."""


@cache
def answer_of(func: Any) -> Answer | None:
    """Return what answers an op in the fake mode's place; None where nothing does."""
    return ANSWERS.get(func) or OF_LIBRARIES.get(str(func))
