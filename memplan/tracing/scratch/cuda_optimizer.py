"""Scratch of optimizer and clipping kernels over lists of tensors.

Only norms need any: the other ``_foreach_`` and ``_fused_`` kernels and ``_amp_foreach_non_finite_check_and_unscale_``
pass their lists as kernel arguments (aten/src/ATen/native/cuda/MultiTensorApply.cuh).
"""

from collections.abc import Mapping

from memplan.tracing.scratch.cuda_shapes import argument, ceil_div, opmath_bytes
from memplan.tracing.scratch.rules import Call, Rule, Scratch, Script

# MultiTensorApply.cuh kChunkSize.
_CHUNK_ELEMENTS = 65536


def foreach_norm(call: Call) -> Script | None:
    """ForeachReduceOp.cu ``foreach_tensor_norm_cuda_internal``: one partial norm per chunk of the longest tensor."""
    dtype = argument(call, 2, "dtype") or call.args[0][0].dtype
    return _partials(call, opmath_bytes(dtype))


def foreach_max(call: Call) -> Script | None:
    """ForeachReduceOp.cu ``foreach_tensor_max_cuda``: the same, in the tensors' own type."""
    return _partials(call, call.args[0][0].element_size())


def _partials(call: Call, item: int) -> Script | None:
    tensors = call.args[0]
    size = len(tensors) * max(ceil_div(tensor.numel(), _CHUNK_ELEMENTS) for tensor in tensors) * item
    return Script(before=(Scratch("alloc", "partial", size),)) if size else None


OPTIMIZER_RULES: Mapping[str, Rule] = {
    "aten._foreach_max.default": foreach_max,
    "aten._foreach_norm.Scalar": foreach_norm,
    "aten._foreach_powsum.Scalar": foreach_norm,
}
"""Op name → rule."""
