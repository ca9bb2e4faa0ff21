"""Scratch of sorting and selecting: ``sort``, ``topk``, ``median``.

Follows aten/src/ATen/native/cuda/Sort.cpp (``sort_cuda_kernel``), Sort.h, SortStable.cu
(``launch_stable_sort_kernel``), TensorTopK.cpp and TensorTopK.cu (``mbtopk::launch``, ``should_use_multiblock``) and
Sorting.cpp (``median_impl``) of torch 2.10 to main of 2026. ``kthvalue`` and the median along a dimension select in
shared memory.
"""

from collections.abc import Mapping

from memplan.tracing.records import DeviceTraits
from memplan.tracing.refs import is_dense
from memplan.tracing.scratch.cuda_cub import radix_sort_pairs_bytes, segmented_sort_pairs_bytes, states_by_key
from memplan.tracing.scratch.cuda_shapes import (
    FLOAT_BYTES,
    INDEX_BYTES,
    Layout,
    allocations,
    argument,
    ceil_div,
    copy_if_strided,
    first_tensor,
    frees,
)
from memplan.tracing.scratch.rules import Call, Rule, Scratch, Script

Capability = tuple[int, int]

# Sort.h should_use_small_sort.
SMALL_SORT = 4096
# launch_stable_sort_kernel: rows that fill the device alone, and rows few enough to be sorted as one.
_LARGE_ROW = 1_000_000
_FEW_ROWS = 128
_MOST_AT_ONCE = 2**31 - 1
# TensorTopK.cu: registers bound the blocks of 256 threads per multiprocessor; items per thread are clamped.
_BLOCK = _DIGITS = 256
_BLOCKS_PER_PROCESSOR = 65_536 // (40 * _BLOCK)
_ITEMS_PER_THREAD = (4, 64)
_COUNT_BYTES = 2
# should_use_multiblock: most rows → least elements of one, for several blocks to share a row.
_SHARED_ROWS = ((20, 20_000), (40, 10_000), (80, 8_000), (199, 5_000), (799, 3_000), (4000, 800))
_SHARED_BY_MANY = 400


def sort_scratch(tensor: Layout, dim: int, capability: Capability, *, dense: bool) -> tuple[Scratch, ...]:
    """Everything that sorting one tensor takes and returns, its results apart.

    Args:
        tensor: What is sorted.
        dim: Along which dimension.
        capability: Compute capability.
        dense: Do the elements fill their memory, in whatever order?
    """
    length = tensor.shape[dim]
    if not tensor.numel:
        return ()
    if length <= SMALL_SORT:
        return Scratch("alloc", "range", length * INDEX_BYTES), *frees("range")
    item, copies = tensor.dtype.itemsize, []
    if not dense or tensor.strides[dim] != 1:
        copies.append(("source", tensor.nbytes))
    if tensor.strides[dim] != 1:
        # The results lie as the tensor does, so rows are sorted into copies of them too.
        copies += [("values", tensor.nbytes), ("indices", tensor.numel * INDEX_BYTES)]
    at_once = min(tensor.numel, _MOST_AT_ONCE // length * length)
    rows = _sorted_rows(length, at_once // length, item, capability)
    return (*allocations(copies), *rows, *frees(*(key for key, _ in reversed(copies))))


def _sorted_rows(length: int, rows: int, item: int, capability: Capability) -> tuple[Scratch, ...]:
    count, bits = length * rows, 8 * item
    if rows == 1 or length >= _LARGE_ROW:
        temporary = radix_sort_pairs_bytes(length, bits, key_bytes=item, capability=capability)
        each = (Scratch("alloc", "sort", temporary), *frees("sort"))
        return (Scratch("alloc", "range", length * INDEX_BYTES), *(each * rows), *frees("range"))
    if rows >= _FEW_ROWS:
        sizes = (
            ("range", count * INDEX_BYTES),
            ("sort", segmented_sort_pairs_bytes(count, key_bytes=item, value_bytes=8)),
        )
        return (*allocations(sizes), *frees("sort", "range"))
    return _rows_as_one(count, rows, item, capability)


def _rows_as_one(count: int, rows: int, item: int, capability: Capability) -> tuple[Scratch, ...]:
    """All rows sorted together, then stably by row."""
    pairs = radix_sort_pairs_bytes(count, 8 * item, key_bytes=item, capability=capability)
    by_row = radix_sort_pairs_bytes(count, (rows - 1).bit_length(), value_bytes=0, capability=capability)
    tables = (("rows", count * INDEX_BYTES), ("sorted rows", count * INDEX_BYTES))
    return (
        *allocations((*tables, ("keys", count * item), ("sort", pairs))),
        *frees("sort", "keys"),
        *allocations((("by row", by_row),)),
        *frees("by row", "sorted rows", "rows"),
    )


def _sort(dim_position: int) -> Rule:
    def rule(call: Call) -> Script | None:
        tensor = first_tensor(call)
        if tensor is None or not tensor.dim():
            return None
        dim = argument(call, dim_position, "dim", -1)
        after = sort_scratch(Layout.of(tensor), dim, call.device.capability, dense=is_dense(tensor))
        return Script(after=after) if after else None

    return rule


def median(call: Call) -> Script | None:
    """``median(self)`` sorts all elements; the sorted copy goes with the op."""
    layout = Layout.of(call.args[0])
    if not layout.numel:
        return None
    flat = Layout.dense((layout.numel,), layout.dtype)
    copies = copy_if_strided("flat", layout)
    sizes = (("sorted", flat.nbytes), ("order", flat.numel * INDEX_BYTES))
    return Script(before=(*copies, *allocations(sizes), *sort_scratch(flat, 0, call.device.capability, dense=True)))


def top(call: Call) -> Script | None:
    """``topk(self, k, dim, largest, sorted)``: digit counts of rows shared by blocks; long results are sorted apart."""
    source, values = call.args[0], call.out[0]
    dim = argument(call, 2, "dim", -1)
    length = source.shape[dim] if source.dim() else 1
    if not values.numel() or not source.numel():
        return None
    after = copy_if_strided("source", source)
    rows = source.numel() // length
    if shares_rows(rows, length):
        counts = _digit_counts(call.device, rows, length, source.element_size())
        after += counts
    if argument(call, 4, "sorted", default=True) and source.dim() and values.shape[dim] > SMALL_SORT:
        after += _sorted_apart(Layout.of(values), dim, call.device.capability)
    return Script(after=after) if after else None


def shares_rows(rows: int, length: int) -> bool:
    """``should_use_multiblock``: do several blocks look at one row?"""
    return length >= next((least for most, least in _SHARED_ROWS if rows <= most), _SHARED_BY_MANY)


def _digit_counts(device: DeviceTraits, rows: int, length: int, item: int) -> tuple[Scratch, ...]:
    least, most = _ITEMS_PER_THREAD
    per_thread = ceil_div(rows * length, device.sm_count * _BLOCKS_PER_PROCESSOR * _BLOCK)
    blocks = rows * ceil_div(length, min(max(per_thread, least), most) * _BLOCK)
    radix = max(item, FLOAT_BYTES)
    tables = allocations(
        (
            ("kth values", rows * item),
            ("ks", 2 * rows * FLOAT_BYTES),
            ("desired", 2 * rows * radix),
            ("counts", blocks * _DIGITS * _COUNT_BYTES),
            ("sums", rows * _DIGITS * FLOAT_BYTES),
            ("within", blocks * FLOAT_BYTES),
            ("kth", blocks * FLOAT_BYTES),
        )
    )
    # How many there are within and at the kth value are summed up one after the other.
    scan = (states_by_key("scan", blocks, device), *frees("scan"))
    return (*tables, *scan, *scan, *frees(*(line.key for line in reversed(tables))))


def _sorted_apart(values: Layout, dim: int, capability: Capability) -> tuple[Scratch, ...]:
    indices = values.numel * INDEX_BYTES
    sizes = (("top indices", indices), ("top values", values.nbytes))
    gathered = (Scratch("alloc", "gathered", indices), *frees("gathered"))
    ordered = sort_scratch(values, dim, capability, dense=True)
    return (*allocations(sizes), *ordered, *gathered, *frees("top values", "top indices"))


SORT_RULES: Mapping[str, Rule] = {
    "aten.sort.default": _sort(1),
    "aten.sort.stable": _sort(2),
    "aten.topk.default": top,
    "aten.median.default": median,
    "aten.nanmedian.default": median,
}
"""Op name → rule."""
