"""Scratch of optimizer and clipping kernels over lists of tensors.

Only norms need any: the other ``_foreach_`` and ``_fused_`` kernels and ``_amp_foreach_non_finite_check_and_unscale_``
pass their lists as kernel arguments (aten/src/ATen/native/cuda/MultiTensorApply.cuh).
"""

from collections.abc import Mapping

from memplan.trace.scratch.cuda_shapes import argument, ceil_div, opmath_bytes
from memplan.trace.scratch.rules import Call, Rule, Scratch, Script

# MultiTensorApply.cuh kChunkSize.
_CHUNK_ELEMENTS = 65536


def foreach_norm(call: Call) -> Script | None:
    """ForeachReduceOp.cu ``foreach_tensor_norm_cuda_internal``: one partial norm per chunk of the longest tensor."""
    tensors = call.args[0]
    chunks = max(ceil_div(tensor.numel(), _CHUNK_ELEMENTS) for tensor in tensors)
    dtype = argument(call, 2, "dtype") or tensors[0].dtype
    size = len(tensors) * chunks * opmath_bytes(dtype)
    return Script(before=(Scratch("alloc", "partial", size),)) if size else None


OPTIMIZER_RULES: Mapping[str, Rule] = {
    "aten._foreach_norm.Scalar": foreach_norm,
    "aten._foreach_powsum.Scalar": foreach_norm,
}
"""Op name → rule."""
