"""What the CPU's kernels make of COO tensors, part by part.

Each function follows a kernel of aten/src/ATen/native/sparse, which it names: which tensors are made in which order,
and which live to its end. Compared with torch.profiler's memory events of torch 2.13.0, November 2026.
"""

from collections.abc import Mapping
from math import prod
from typing import TYPE_CHECKING, Any

import torch

from memplan.seam.autograd import current_autograd_node
from memplan.seam.fake import FakeTensor
from memplan.tracing.sparse.parts import aten, coo_parts, is_coo, lifted, make_coo, replace

if TYPE_CHECKING:
    from memplan.tracing.guesses import Guesses

Args = tuple[Any, ...]
Kwargs = Mapping[str, Any]


def build(_: "Guesses", func: Any, args: Args, kwargs: Kwargs) -> Any:
    """The constructor, of real parts; fake ones it takes by itself."""
    *dims, indices, values = args[:5]
    if isinstance(indices, FakeTensor) and isinstance(values, FakeTensor):
        return NotImplemented
    return func(*dims, lifted(indices), lifted(values), *args[5:], **kwargs)


def clone(_: "Guesses", __: Any, args: Args, ___: Kwargs) -> torch.Tensor:
    """SparseTensor.cpp clone_sparse; but autograd's engine takes a gradient that nobody else holds as it is.

    Source: torch/csrc/autograd/functions/accumulate_grad.h ``accumulateGrad``. Where a dispatch mode looks on, more
    holders are counted, and it clones.
    """
    indices, values = coo_parts(args[0])
    node: Any = current_autograd_node()
    takes = node is not None and node.name() == "torch::autograd::AccumulateGrad"
    if takes and indices.is_contiguous() and values.is_contiguous():
        indices, values = indices.detach(), values.detach()
    else:
        values = values.clone()
        indices = indices.clone()
    return make_coo(indices, values, args[0].shape, coalesced=args[0].is_coalesced())


def coalesce(guesses: "Guesses", _: Any, args: Args, __: Kwargs) -> torch.Tensor:
    """SparseTensor.cpp _coalesce_sparse_cpu: results are as long as the argument, and show their beginning."""
    tensor = args[0]
    indices, values = coo_parts(tensor)
    count = values.shape[0]
    if count < 2:
        return make_coo(indices.clone(), values.clone(), tensor.shape, coalesced=True)
    values = values.contiguous()
    flat = indices[0] if indices.shape[0] == 1 else indices.new_empty(count)
    new_indices, new_values = indices.new_empty(indices.shape), values.new_empty(values.shape)
    order = flat.sort()
    count = guesses.distinct(indices, tensor.shape)
    del order
    return make_coo(new_indices.narrow(1, 0, count), new_values.narrow(0, 0, count), tensor.shape, coalesced=True)


def coalesced(guesses: "Guesses", tensor: torch.Tensor) -> torch.Tensor:
    """The tensor itself if it is coalesced, as ``Tensor.coalesce`` does it."""
    return tensor if tensor.is_coalesced() else coalesce(guesses, None, (tensor,), {})


def transpose(_: "Guesses", __: Any, args: Args, ___: Kwargs) -> torch.Tensor:
    """TensorShape.cpp sparse_transpose_: of a clone, whose two rows of indices change places through a third."""
    tensor = args[0]
    first, second = args[1:] if len(args) == 3 else (0, 1)
    indices, values = coo_parts(tensor)
    values = values.clone()
    indices = indices.clone()
    indices.new_zeros(indices.shape[1])
    size = list(tensor.shape)
    size[first], size[second] = size[second], size[first]
    return make_coo(indices, values, size)


def to_dense(_: "Guesses", __: Any, args: Args, kwargs: Kwargs) -> torch.Tensor:
    """SparseTensor.cpp sparse_to_dense: zeros, to which it is added."""
    _indices, values = coo_parts(args[0])
    return values.new_zeros(args[0].shape, dtype=kwargs.get("dtype") or (args[1] if len(args) > 1 else None))


def to_copy(_: "Guesses", __: Any, args: Args, kwargs: Kwargs) -> torch.Tensor:
    """SparseTensor.cpp copy_sparse_to_sparse_, into a new tensor."""
    indices, values = coo_parts(args[0])
    indices = indices.clone()
    values = values.to(kwargs.get("dtype") or values.dtype, copy=True)
    return make_coo(indices, values, args[0].shape, coalesced=args[0].is_coalesced())


def mask(_: "Guesses", __: Any, args: Args, ___: Kwargs) -> torch.Tensor:
    """SparseTensor.cpp sparse_mask: the mask's indices, and the elements there times one."""
    indices, values = coo_parts(args[1])
    source = coo_parts(args[0])[1] if is_coo(args[0]) else args[0]
    selected = source.new_empty(values.shape)
    indices = indices.clone()
    return make_coo(indices, selected.mul(1), args[1].shape, coalesced=args[1].is_coalesced())


def add(guesses: "Guesses", _: Any, args: Args, kwargs: Kwargs) -> torch.Tensor:
    """SparseTensorMath.cpp add_out_sparse_cpu: as long as both together; added to a dense tensor, dense."""
    del kwargs
    left: torch.Tensor = args[0]
    right: torch.Tensor = args[1]
    if not is_coo(left):
        return left.new_empty(left.shape, dtype=torch.promote_types(left.dtype, right.dtype))
    indices, values = coo_parts(left)
    more_values = coo_parts(right)[1]
    both = left.is_coalesced() and right.is_coalesced()
    total = values.shape[0] + more_values.shape[0]
    sums = indices.new_empty((indices.shape[0], total)), values.new_empty((total, *values.shape[1:]))
    if both:
        same = values.shape[0] == more_values.shape[0]
        total = values.shape[0] if same else min(total, prod(left.shape[: indices.shape[0]]))
        guesses.assume("sparse tensors that are added have all indices in common where they have as many, else none")
    return make_coo(sums[0].narrow(1, 0, total), sums[1].narrow(0, 0, total), left.shape, coalesced=both)


def copy_in_place(_: "Guesses", __: Any, args: Args, ___: Kwargs) -> torch.Tensor:
    """SparseTensor.cpp copy_sparse_: the target has copies of the other's parts, in its own type."""
    target: torch.Tensor = args[0]
    other: torch.Tensor = args[1]
    indices, values = coo_parts(other)
    indices, values = indices.clone(), values.to(target.dtype, copy=True)
    return replace(target, make_coo(indices, values, other.shape, coalesced=other.is_coalesced()))


def add_in_place(guesses: "Guesses", func: Any, args: Args, kwargs: Kwargs) -> torch.Tensor:
    """The same in place; to a dense tensor elements are added where they belong, which takes nothing."""
    target: torch.Tensor = args[0]
    return replace(target, add(guesses, func, args, kwargs)) if is_coo(target) else target


def scale(guesses: "Guesses", func: Any, args: Args, kwargs: Kwargs) -> torch.Tensor:
    """SparseTensorMath.cpp mul_sparse_: by a number, by a dense tensor, by another sparse one."""
    left, right = args[:2] if is_coo(args[0]) else (args[1], args[0])
    if not isinstance(right, torch.Tensor) or right.dim() == 0:
        indices, values = coo_parts(left)
        indices = indices.clone()
        return make_coo(indices, func(values, right), left.shape, coalesced=left.is_coalesced())
    if not is_coo(right):
        return mask(guesses, func, (right.expand(left.shape), left), kwargs)
    fewer = min((left, right), key=lambda each: int(each._nnz()))
    indices, values = coo_parts(coalesced(guesses, fewer))
    indices = indices.new_empty(indices.shape)
    guesses.assume("sparse tensors that are multiplied have their indices in common")
    return make_coo(indices, values.new_empty(values.shape), left.shape, coalesced=True)


def scale_in_place(guesses: "Guesses", func: Any, args: Args, kwargs: Kwargs) -> torch.Tensor:
    """SparseTensorMath.cpp mul_sparse_ and div_sparse_ make the product first, and then take its parts."""
    plain = {aten.mul_.Tensor: aten.mul.Tensor, aten.div_.Tensor: aten.div.Tensor}
    return replace(args[0], scale(guesses, plain[func], args, kwargs))


def elementwise(guesses: "Guesses", func: Any, args: Args, kwargs: Kwargs) -> torch.Tensor:
    """SparseUnaryOps.cpp coalesced_unary_ufunc."""
    tensor = coalesced(guesses, args[0])
    indices, values = coo_parts(tensor)
    values = func(values, *args[1:], **kwargs)
    return make_coo(indices.clone(), values, tensor.shape, coalesced=True)


def softmax(guesses: "Guesses", _: Any, args: Args, __: Kwargs) -> torch.Tensor:
    """SoftMax.cpp softmax_sparse_cpu and its kin: indices in order, and a result like the argument."""
    tensor = coalesced(guesses, args[0])
    indices, values = coo_parts(tensor)
    ordered = indices.clone()
    values = values.new_empty(values.shape)
    indices = indices.new_empty(indices.shape)
    del ordered
    return make_coo(indices, values, tensor.shape, coalesced=True)


def softmax_backward(_: "Guesses", __: Any, args: Args, ___: Kwargs) -> torch.Tensor:
    """SoftMax.cpp softmax_backward_sparse_cpu: like the gradient."""
    indices, values = coo_parts(args[0])
    values = values.new_empty(values.shape)
    return make_coo(indices.new_empty(indices.shape), values, args[0].shape, coalesced=True)


def reduce_backward(_: "Guesses", __: Any, args: Args, kwargs: Kwargs) -> torch.Tensor:
    """SparseTensorMath.cpp _sparse_sum_backward_cpu: a value for each element of the argument, found by its index."""
    gradient, tensor = args[:2]
    indices, values = coo_parts(tensor)
    found = torch.empty_like(values, memory_format=torch.contiguous_format)
    if is_coo(gradient):
        keys = indices.new_zeros(gradient._nnz()), indices.new_zeros(indices.shape[1])
        del keys
    del kwargs
    return make_coo(indices.clone(), found, tensor.shape, coalesced=tensor.is_coalesced())


def reduce(guesses: "Guesses", _: Any, args: Args, kwargs: Kwargs) -> torch.Tensor:
    """SparseTensorMath.cpp _sparse_sum: elements under the indices that remain, coalesced."""
    tensor = args[0]
    dims = sorted(dim % tensor.dim() for dim in (args[1] if len(args) > 1 else kwargs["dim"]))
    indices, values = coo_parts(tensor)
    dense = [dim - indices.shape[0] + 1 for dim in dims if dim >= indices.shape[0]]
    left = [dim for dim in range(indices.shape[0]) if dim not in dims]
    values = values.sum(dense) if dense else values.clone()
    if not left:
        return values.sum(0)
    size = [length for dim, length in enumerate(tensor.shape) if dim not in dims]
    if len(left) == indices.shape[0]:
        return make_coo(indices.clone(), values, size, coalesced=tensor.is_coalesced())
    rows = indices[: len(left)].clone()
    return coalesce(guesses, None, (make_coo(rows, values, size),), {})


def concatenate(_: "Guesses", __: Any, args: Args, kwargs: Kwargs) -> torch.Tensor:
    """TensorShape.cpp cat_sparse_impl: of indices and of values, the indices of every tensor moved on."""
    tensors = args[0]
    dim = kwargs.get("dim", args[1] if len(args) > 1 else 0) % tensors[0].dim()
    parts = [coo_parts(tensor) for tensor in tensors]
    size = list(tensors[0].shape)
    size[dim] = sum(tensor.shape[dim] for tensor in tensors)
    indices = torch.cat([indices for indices, _ in parts], 1)
    values = torch.cat([values for _, values in parts])
    return make_coo(indices, values, size)


def from_dense(guesses: "Guesses", _: Any, tensor: torch.Tensor, sparse_dim: int | None = None) -> torch.Tensor:
    """SparseTensor.cpp dense_to_sparse: what is not zero."""
    dims = tensor.dim() if sparse_dim is None else sparse_dim
    found = tensor.nonzero()
    del guesses
    count = min(found.shape[0], prod(tensor.shape[:dims]))
    indices = found.new_empty((dims, count))
    selected = tensor.new_empty((count, *tensor.shape[dims:]))
    return make_coo(indices, selected.clone(), tensor.shape, coalesced=True)
