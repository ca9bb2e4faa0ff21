"""Scratch of indexing: index tensors copied from the host, and the sorting kernel behind accumulation.

Follows aten/src/ATen/native/cuda/Indexing.cu (``index_put_with_sort_kernel``, ``computeLinearIndex``,
``wrapIndexOnce``) and aten/src/ATen/native/TensorAdvancedIndexing.cpp (``_index_put_impl_``). ``gather``, ``scatter``
and ``index_add`` use atomics: no scratch, unless algorithms must be deterministic, which is left out for them.
"""

from collections.abc import Mapping, Sequence

import torch

from memplan.tracing.scratch.cuda_cub import key_bits, radix_sort_pairs_bytes
from memplan.tracing.scratch.cuda_scan import selected
from memplan.tracing.scratch.cuda_shapes import INDEX_BYTES, Layout, argument, copy_if_strided, frees, nbytes, product
from memplan.tracing.scratch.rules import Call, Rule, Scratch, Script

_BOOLEAN = (torch.bool, torch.uint8)


def host_copies(call: Call) -> Script | None:
    """``x[indices]`` with indices on the host: each is copied to the device first."""
    host = [index for index in argument(call, 1, "indices") if index is not None and call.is_host(index)]
    copies = tuple(Scratch("alloc", f"index{i}", nbytes(index)) for i, index in enumerate(host))
    if not copies:
        return None
    return Script(before=copies, after=frees(*(copy.key for copy in copies)))


def index(call: Call) -> Script | None:
    """``x[indices]``; a mask's positions are found first (IndexingUtils.h ``expandTensors``)."""
    given = [(at, each) for at, each in enumerate(argument(call, 1, "indices")) if each is not None]
    if len(given) != 1 or given[0][1].dtype not in _BOOLEAN or call.is_host(given[0][1]):
        return host_copies(call)
    position, mask = given[0]
    return selected(Layout.of(mask), call.out.shape[position], call.device)


def accumulate(call: Call) -> Script | None:
    """``index_put`` with ``accumulate``: sort linear indices, then add runs of equal ones."""
    target, indices = argument(call, 0, "self"), argument(call, 1, "indices")
    given = [index for index in indices if index is not None]
    if any(index.dtype in _BOOLEAN for index in given):
        return _put_by_mask(call, given)
    if not _sorts(call):
        return host_copies(call)
    count = product(_broadcast([index.shape for index in given]))
    if not count:
        return None
    dense = copy_if_strided("target", target)
    script = [*dense, *_linear_index(call, given, count * INDEX_BYTES)]
    expanded = _expanded_values(target, indices, count)
    values = argument(call, 2, "values")
    copied = not values.is_contiguous() or values.numel() != expanded
    if copied:
        script.append(Scratch("alloc", "values", expanded * values.element_size()))
    script += _sort(target, indices, count, call.device.capability)
    script += frees(*(["values"] if copied else []), "index0", *(["target"] if dense else []))
    return Script(after=tuple(script))


def _put_by_mask(call: Call, given: Sequence[torch.Tensor]) -> Script | None:
    """``x[mask] = values``: the mask's positions; one value alone fills instead (``canDispatchToMaskedFill``).

    Where positions are sorted, too, or stand among others, their number is not worked out.
    """
    target, values = argument(call, 0, "self"), argument(call, 2, "values")
    mask = given[0]
    if len(given) > 1 or _sorts(call) or values.numel() <= 1 or call.is_host(mask):
        return None
    # The mask names the leading dimensions; what is left of the target is put whole.
    rest = product(target.shape[mask.dim() :])
    return selected(Layout.of(mask), values.numel() // max(rest, 1), call.device)


def _sorts(call: Call) -> bool:
    """TensorAdvancedIndexing.cpp ``_index_put_impl_``: accumulation sorts, and so do deterministic algorithms."""
    deterministic = torch.are_deterministic_algorithms_enabled() and argument(call, 2, "values").numel() > 1
    return bool(argument(call, 3, "accumulate", default=False)) or deterministic


def _broadcast(shapes: Sequence[Sequence[int]]) -> list[int]:
    """The shape that several shapes broadcast to."""
    rank = max(len(shape) for shape in shapes)
    padded = [(1,) * (rank - len(shape)) + tuple(shape) for shape in shapes]
    return [next((size for size in sizes if size != 1), 1) for sizes in zip(*padded, strict=True)]


def _linear_index(call: Call, given: Sequence[torch.Tensor], size: int) -> list[Scratch]:
    """Wrap each index (``remainder``), scale it (``mul``) and add it to the first."""
    script: list[Scratch] = []
    for position, index in enumerate(given):
        scaled, wrapped = f"index{position}", f"wrapped{position}"
        if call.is_host(index):
            # Wrapped and scaled on the host; only the result is copied.
            script.append(Scratch("alloc", scaled, size))
        else:
            script += [Scratch("alloc", wrapped, size), Scratch("alloc", scaled, size), *frees(wrapped)]
        if position:
            script += frees(scaled)
    return script


def _expanded_values(target: torch.Tensor, indices: Sequence[torch.Tensor | None], count: int) -> int:
    """Elements of the values once they are expanded to what the indices select."""
    return count * product(size for dim, size in enumerate(target.shape) if dim >= len(indices) or indices[dim] is None)


def _sort(
    target: torch.Tensor, indices: Sequence[torch.Tensor | None], count: int, capability: tuple[int, int]
) -> list[Scratch]:
    defined = [dim for dim, index in enumerate(indices) if index is not None]
    adjacent = defined[-1] - defined[0] + 1 == len(defined)
    # Indexed dimensions that are not adjacent are transposed to the front; a slice is what follows them.
    tail = [dim for dim in range(target.dim()) if dim not in defined and (not adjacent or dim > defined[-1])]
    bits = key_bits((target.numel() - 1) // max(1, product(target.shape[dim] for dim in tail)))
    # ``transposeToFrontAndInvPerm`` leaves a permuted view, which is copied.
    script = [] if adjacent else [Scratch("alloc", "permuted", nbytes(target))]
    names = ("sorted", "original", "range")
    script += [Scratch("alloc", name, count * INDEX_BYTES) for name in names]
    temporary = radix_sort_pairs_bytes(count, bits, capability=capability)
    script += [Scratch("alloc", "sort", temporary), *frees("sort", *reversed(names))]
    return script + ([] if adjacent else list(frees("permuted")))


INDEX_RULES: Mapping[str, Rule] = {
    "aten.index.Tensor": index,
    "aten._unsafe_index.Tensor": index,
    "aten.index_put.default": accumulate,
    "aten.index_put_.default": accumulate,
    "aten._index_put_impl_.default": accumulate,
    "aten._unsafe_index_put.default": accumulate,
}
"""Op name → rule."""
