"""Op → what its kernel does with the parts of sparse tensors; on the CPU, the ops that some of dense ones call."""

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import torch

from memplan.tracing import encoder_layers
from memplan.tracing.records import DeviceTraits
from memplan.tracing.sparse import compressed, coordinates, embedding, products
from memplan.tracing.sparse.parts import COMPRESSED

if TYPE_CHECKING:
    from memplan.tracing.guesses import Guesses

Body = Callable[["Guesses", Any, tuple[Any, ...], Mapping[str, Any]], Any]
"""(values, op, args, kwargs) → the op's result; what it calls on the way is recorded."""

_NATIVE = """
    _indices _values indices values crow_indices col_indices ccol_indices row_indices
    _sparse_coo_tensor_with_dims_and_tensors is_coalesced _coalesced_ _nnz sparse_dim dense_dim is_same_size
    detach alias sum _has_compatible_shallow_copy_type
"""
NATIVE = frozenset(f"aten.{name}.default" for name in _NATIVE.split())
"""Ops of which torch's own shape functions lose nothing."""


def _each(coo: Body, others: Body) -> Body:
    """One body for tensors of coordinates, one for compressed ones."""

    def body(guesses: "Guesses", func: Any, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Any:
        is_compressed = any(isinstance(each, torch.Tensor) and each.layout in COMPRESSED for each in args)
        return (others if is_compressed else coo)(guesses, func, args, kwargs)

    return body


def _converted(layout: torch.layout | None) -> Body:
    def body(guesses: "Guesses", _: Any, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Any:
        wanted = layout or kwargs.get("layout") or torch.sparse_coo
        dims = args[1] if len(args) > 1 and isinstance(args[1], int) else None
        return compressed.convert(guesses, args[0], wanted, dims)

    return body


_UNARY = """
    abs asin asinh atan atanh ceil deg2rad erf erfinv expm1 floor frac log1p neg nan_to_num positive rad2deg relu
    round sgn sign signbit sin sinh sqrt tan tanh trunc threshold_backward pow.Tensor_Scalar isnan
"""
_CONSTRUCTORS = """
    sparse_compressed_tensor.comp_plain_value sparse_compressed_tensor.comp_plain_value_size
    _sparse_compressed_tensor_unsafe sparse_csr_tensor.crow_col_value sparse_csr_tensor.crow_col_value_size
    _sparse_csr_tensor_unsafe sparse_csc_tensor.ccol_row_value sparse_csc_tensor.ccol_row_value_size
    _sparse_csc_tensor_unsafe sparse_bsr_tensor.crow_col_value_size _sparse_bsr_tensor_unsafe
    sparse_bsc_tensor.ccol_row_value_size _sparse_bsc_tensor_unsafe
"""


def _named(words: str, body: Body) -> dict[str, Body]:
    return {f"aten.{word}" if "." in word else f"aten.{word}.default": body for word in words.split()}


CONVERSIONS: Mapping[str, Body] = {
    "aten._to_sparse.default": _converted(None),
    "aten._to_sparse.sparse_dim": _converted(None),
    "aten._to_sparse_csr.default": _converted(torch.sparse_csr),
    "aten._to_sparse_csc.default": _converted(torch.sparse_csc),
}
"""Ops that make one layout of another, dense tensors among them."""

_ON_SPARSE: Mapping[str, Body] = {
    **_named(_UNARY, _each(coordinates.elementwise, compressed.elementwise)),
    "aten.clone.default": _each(coordinates.clone, compressed.clone),
    "aten.copy_.default": _each(coordinates.copy_in_place, compressed.copy_in_place),
    "aten._to_copy.default": _each(coordinates.to_copy, compressed.to_copy),
    "aten._coalesce.default": coordinates.coalesce,
    "aten.t.default": _each(coordinates.transpose, compressed.transpose),
    "aten.transpose.int": _each(coordinates.transpose, compressed.transpose),
    "aten._to_dense.default": _each(coordinates.to_dense, compressed.to_dense),
    "aten.sparse_mask.default": coordinates.mask,
    "aten.add.Tensor": _each(coordinates.add, compressed.add),
    "aten.sub.Tensor": _each(coordinates.add, compressed.add),
    "aten.add_.Tensor": _each(coordinates.add_in_place, compressed.add_in_place),
    "aten.sub_.Tensor": _each(coordinates.add_in_place, compressed.add_in_place),
    "aten.mul.Tensor": _each(coordinates.scale, compressed.elementwise),
    "aten.mul.Scalar": _each(coordinates.scale, compressed.elementwise),
    "aten.div.Tensor": _each(coordinates.scale, compressed.elementwise),
    "aten.mul_.Tensor": _each(coordinates.scale_in_place, compressed.scale_in_place),
    "aten.div_.Tensor": _each(coordinates.scale_in_place, compressed.scale_in_place),
    "aten._sparse_softmax.default": coordinates.softmax,
    "aten._sparse_log_softmax.default": coordinates.softmax,
    "aten._sparse_softmax_backward_data.default": coordinates.softmax_backward,
    "aten._sparse_log_softmax_backward_data.default": coordinates.softmax_backward,
    "aten._sparse_sum.dim": coordinates.reduce,
    "aten._sparse_sum_backward.default": coordinates.reduce_backward,
    "aten.cat.default": coordinates.concatenate,
    "aten.mm.default": products.product,
    "aten.addmm.default": products.added_product,
    "aten._sparse_addmm.default": products.below_autograd,
    "aten.mv.default": products.with_vector,
    "aten.bmm.default": products.in_batches,
    "aten._sparse_sparse_matmul.default": products.between_sparse,
    "aten.sparse_sampled_addmm.default": products.sampled,
}

_ON_DENSE: Mapping[str, Body] = {
    **CONVERSIONS,
    **_named(_CONSTRUCTORS, compressed.build),
    "aten._sparse_coo_tensor_with_dims_and_tensors.default": coordinates.build,
    "aten._embedding_bag_backward.default": embedding.bag_backward,
}
BODIES: Mapping[str, Body] = {**_ON_SPARSE, **_ON_DENSE}
"""Op name → its body."""
ALWAYS = frozenset((*_ON_DENSE, *encoder_layers.BODIES))
"""Ops whose body holds for dense arguments too, unless it returns NotImplemented."""


def is_rough(name: str, args: Sequence[Any]) -> bool:
    """Does a body guess what its kernel takes? Where elements of two sparse operands meet, which data decide."""
    if name == "aten.sparse_mask.default":
        return isinstance(args[0], torch.Tensor) and args[0].layout is torch.sparse_coo
    return name == "aten._sparse_sparse_matmul.default"


def bodies_of(device: DeviceTraits) -> Mapping[str, Body]:
    """The bodies of a device's kernels."""
    return {**BODIES, **encoder_layers.BODIES} if device.kind == "cpu" else BODIES
