"""What the CPU's kernels make of compressed tensors: CSR and CSC, and blocks where a kernel does not look at them.

Follows aten/src/ATen/native/sparse/SparseCsrTensor.cpp, SparseUnaryOps.cpp and aten/src/ATen/native, where conversions
are in TensorConversions.cpp; compared with torch.profiler's memory events of torch 2.13.0, November 2026.
"""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import torch

from memplan.tracing.sparse import coordinates
from memplan.tracing.sparse.parts import (
    OTHER_WAY,
    ROWS,
    Compressed,
    compressed_parts,
    coo_parts,
    is_coo,
    is_sparse,
    lifted,
    make_compressed,
    make_coo,
    replace,
)

if TYPE_CHECKING:
    from memplan.tracing.guesses import Guesses

Args = tuple[Any, ...]
Kwargs = Mapping[str, Any]

_LAYOUTS = {
    "sparse_csr_tensor": torch.sparse_csr,
    "sparse_csc_tensor": torch.sparse_csc,
    "sparse_bsr_tensor": torch.sparse_bsr,
    "sparse_bsc_tensor": torch.sparse_bsc,
    "sparse_compressed_tensor": None,
}
"""Name of a constructor, which may stand between ``_`` and ``_unsafe`` → its layout; None: it is told."""
_INDEX = torch.int64


def build(guesses: "Guesses", func: Any, args: Args, kwargs: Kwargs) -> torch.Tensor:
    """A constructor: the tensor has the parts that it is given."""
    parts = Compressed(*(lifted(part) for part in args[:3]))
    name = func._opname.strip("_").removesuffix("_unsafe")
    layout = _LAYOUTS[name] or kwargs["layout"]
    size: Sequence[int] | None = args[3] if len(args) > 3 and isinstance(args[3], list | tuple) else None
    if size is None:
        guesses.assume("compressed tensors without a size are square")
        size = [parts.pointers.shape[-1] - 1] * 2
    dtype = kwargs.get("dtype")
    if dtype is not None and dtype is not parts.values.dtype:
        parts = parts._replace(values=parts.values.to(dtype))
    return make_compressed(parts, size, layout)


def clone(_: "Guesses", __: Any, args: Args, ___: Kwargs) -> torch.Tensor:
    """SparseCsrTensor.cpp clone_sparse_compressed."""
    return _copied(args[0], compressed_parts(args[0]).values.clone())


def to_copy(_: "Guesses", __: Any, args: Args, kwargs: Kwargs) -> torch.Tensor:
    """TensorConversions.cpp _to_copy: the values in the new type, the indices as they are."""
    parts = compressed_parts(args[0])
    return _copied(args[0], parts.values.to(kwargs.get("dtype") or parts.values.dtype, copy=True))


def elementwise(_: "Guesses", func: Any, args: Args, kwargs: Kwargs) -> torch.Tensor:
    """SparseUnaryOps.cpp get_result_tensor_for_unary_op, and a product with a number."""
    tensor, others = (args[0], args[1:]) if is_sparse(args[0]) else (args[1], args[:1])
    return _copied(tensor, func(compressed_parts(tensor).values, *others, **kwargs))


def transpose(_: "Guesses", __: Any, args: Args, ___: Kwargs) -> torch.Tensor:
    """SparseCsrTensor.cpp transpose_sparse_compressed: the same parts in the other layout."""
    tensor = args[0]
    return make_compressed(compressed_parts(tensor), tensor.shape[::-1], OTHER_WAY[tensor.layout])


def to_dense(_: "Guesses", __: Any, args: Args, kwargs: Kwargs) -> torch.Tensor:
    """TensorConversions.cpp sparse_compressed_to_dense: zeros, and where in them each element goes."""
    pointers, plain, values = compressed_parts(args[0])
    dtype = kwargs.get("dtype") or (args[1] if len(args) > 1 else None)
    dense = values.new_zeros(args[0].shape, dtype=dtype)
    if args[0].layout not in {torch.sparse_csr, torch.sparse_csc}:
        return dense
    count = values.shape[0]
    # The batch of each element, and the pointers of all batches in one row.
    batches, joined = plain.new_empty(count, dtype=_INDEX), torch.empty_like(pointers)
    coordinates = plain.new_empty((2, count))
    offsets = [plain.new_empty(count, dtype=_INDEX) for _ in range(5)]
    del batches, joined, coordinates, offsets
    return dense


def to_coo(tensor: torch.Tensor) -> torch.Tensor:
    """TensorConversions.cpp sparse_compressed_to_sparse: the pointers are written out, the values are taken."""
    plain, values = compressed_parts(tensor)[1:]
    count = plain.shape[-1]
    return make_coo(plain.new_empty((2, count)), values, tensor.shape, coalesced=tensor.layout in ROWS)


def from_coo(guesses: "Guesses", tensor: torch.Tensor, layout: torch.layout) -> torch.Tensor:
    """TensorConversions.cpp coo_to_sparse_csr and _csc: coalesced, with counted rows, the columns as they are."""
    turned = layout is torch.sparse_csc
    if turned:
        tensor = coordinates.transpose(guesses, None, (tensor,), {})
    tensor = coordinates.coalesced(guesses, tensor)
    indices, values = coo_parts(tensor)
    pointers = indices.new_empty(tensor.shape[0] + 1)
    return make_compressed(
        Compressed(pointers, indices[1], values), tensor.shape[::-1] if turned else tensor.shape, layout
    )


def from_dense(tensor: torch.Tensor, layout: torch.layout) -> torch.Tensor:
    """TensorConversions.cpp dense_to_sparse_compressed: a mask, and where it holds."""
    there = tensor != 0
    found = there.nonzero()
    long = tensor.shape[0 if layout is torch.sparse_csr else 1]
    pointers = found.new_empty(long + 1)
    count = found.shape[0]
    plain, values = found.new_empty(count), tensor.new_empty(count)
    return make_compressed(Compressed(pointers, plain, values), tensor.shape, layout)


def swap(tensor: torch.Tensor, layout: torch.layout) -> torch.Tensor:
    """TensorConversions.cpp sparse_compressed_to_flipped: every element's place is worked out and sorted."""
    pointers, plain, values = compressed_parts(tensor)
    count = values.shape[0]
    long = tensor.shape[0 if layout in ROWS else 1] + 1
    joined = torch.empty_like(pointers)
    places = plain.new_empty((2, count))
    keys = plain.new_empty(count)
    order = keys.sort()[1]
    moved, taken = places.new_empty((2, count)), values.new_empty(values.shape)
    pointers = pointers.new_empty(long)
    work = pointers.new_empty((2, long))
    del joined, places, keys, order, work
    return make_compressed(Compressed(pointers, moved[1], taken), tensor.shape, layout)


def convert(guesses: "Guesses", tensor: torch.Tensor, layout: torch.layout, sparse_dim: int | None) -> torch.Tensor:
    """The same elements in a sparse layout; a tensor that has it already is another view of its parts."""
    if tensor.layout is layout:
        return tensor.detach()
    if layout is torch.sparse_coo:
        if is_sparse(tensor):
            return to_coo(tensor)
        return coordinates.from_dense(guesses, None, tensor, sparse_dim)
    if is_coo(tensor):
        return from_coo(guesses, tensor, layout)
    return swap(tensor, layout) if is_sparse(tensor) else from_dense(tensor, layout)


def scale_in_place(_: "Guesses", func: Any, args: Args, __: Kwargs) -> torch.Tensor:
    """SparseCsrTensorMath.cpp: the values are multiplied where they are."""
    func(compressed_parts(args[0]).values, args[1])
    target: torch.Tensor = args[0]
    return target


def copy_in_place(_: "Guesses", func: Any, args: Args, kwargs: Kwargs) -> torch.Tensor:
    """SparseCsrTensor.cpp copy_sparse_compressed_: part by part, where the parts are."""
    target: torch.Tensor = args[0]
    for part, other in zip(compressed_parts(target), compressed_parts(args[1]), strict=True):
        func(part, other, *args[2:], **kwargs)
    return target


def add(guesses: "Guesses", _: Any, args: Args, __: Kwargs) -> torch.Tensor:
    """SparseCsrTensorMath.cpp add_out_sparse_compressed_cpu: as many as both together (MKL counts them)."""
    left: torch.Tensor = args[0]
    right: torch.Tensor = args[1]
    if not is_sparse(left):
        return torch.empty_like(left)
    if not is_sparse(right):
        return right.new_empty(right.shape)
    guesses.assume("sparse tensors that are added have their indices in common")
    return _copied(left, torch.empty_like(compressed_parts(left).values))


def add_in_place(guesses: "Guesses", func: Any, args: Args, kwargs: Kwargs) -> torch.Tensor:
    """The same in place; to a dense tensor elements are added where they belong."""
    target: torch.Tensor = args[0]
    both = is_sparse(target) and is_sparse(args[1])
    return replace(target, add(guesses, func, args, kwargs)) if both else target


def _copied(tensor: torch.Tensor, values: torch.Tensor) -> torch.Tensor:
    """The tensor with other values and with copies of its indices."""
    parts = compressed_parts(tensor)
    plain = parts.plain.clone()
    return make_compressed(Compressed(parts.pointers.clone(), plain, values), tensor.shape, tensor.layout)
