"""What each attention kernel of CUDA can run: the filters of sdp_utils.cpp, as functions of shapes, strides and dtypes.

Source: aten/src/ATen/native/transformers/cuda/sdp_utils.cpp ``can_use_*_attention`` and sdp_utils_cpp.h, for dense
inputs; each check carries the name of the filter it follows. Read at main of 2025-06 and of 2026, which agree except
where a comment tells them apart.
"""

from collections.abc import Callable, Mapping

import torch

from memplan.tracing.cuda.attention_call import AttentionCall, AttentionKernel, Capability
from memplan.tracing.cuda.release import since

_HALF = (torch.float16, torch.bfloat16)
_CUDNN_LARGEST_DIM = 65_535

Check = Callable[[AttentionCall], str | None]
"""None: passed; otherwise the reason against the kernel."""


def _four_dimensional(call: AttentionCall) -> str | None:
    """check_tensor_shapes."""
    return None if all(len(x.shape) == 4 for x in call.operands) else "query, key and value must have 4 dimensions"


def _no_mask(call: AttentionCall) -> str | None:
    """check_for_attn_mask."""
    return None if call.mask is None else "it takes no attn_mask"


def _mask_shape(call: AttentionCall) -> str | None:
    """check_attn_mask_shape."""
    if call.mask is None:
        return None
    if call.mask.requires_grad:
        return "attn_mask requires a gradient"
    full = (*call.query.shape[:3], call.key.shape[2])
    mask = call.mask.shape
    if len(mask) in (2, 4) and all(size in (1, target) for size, target in zip(mask, full[-len(mask) :], strict=True)):
        return None
    return f"attn_mask of shape {list(mask)} is neither 2-D nor 4-D broadcastable to {list(full)}"


def _flash_head_size(call: AttentionCall) -> str | None:
    """check_head_dim_size_flash."""
    sizes = {x.shape[-1] for x in call.operands}
    return None if len(sizes) == 1 and max(sizes) <= 256 else "q, k and v need one head size of at most 256"


def _flash_hardware(call: AttentionCall) -> str | None:
    """check_flash_attention_hardware_support, check_cudnn_hardware_support."""
    return None if (8, 0) <= call.capability <= (12, 1) else f"it needs sm80 or newer, not sm{_sm(call)}"


def _flash_training_head_size(call: AttentionCall) -> str | None:
    """check_requires_grad_and_head_dim_gt192_constraints_on_sm86_89_or_120."""
    consumer = (8, 6) <= call.capability <= (8, 9) or (12, 0) <= call.capability <= (12, 1)
    size = call.query.shape[-1]
    if consumer and call.trains and (192 < size <= 224 or (size > 224 and call.dropout > 0)):
        return f"head size {size} cannot be trained on sm{_sm(call)}"
    return None


def _flash_causal(call: AttentionCall) -> str | None:
    """check_flash_causal_non_square_seqlens."""
    if call.is_causal and call.query.shape[-2] != call.key.shape[-2]:
        return "is_causal needs queries and keys of one length"
    return None


def _low_precision(call: AttentionCall) -> str | None:
    """check_dtypes_low_precision."""
    return _dtype(call, _HALF if call.capability >= (8, 0) else (torch.float16,))


def _efficient_dtype(call: AttentionCall) -> str | None:
    """can_use_mem_efficient_attention, its last lines."""
    return _dtype(call, (torch.float16, torch.float32, *((torch.bfloat16,) if call.capability >= (8, 0) else ())))


def _efficient_hardware(call: AttentionCall) -> str | None:
    """check_mem_efficient_hardware_support."""
    return None if (5, 0) <= call.capability <= (12, 1) else f"it does not run on sm{_sm(call)}"


def _efficient_head_size(call: AttentionCall) -> str | None:
    """check_head_dim_size_mem_efficient."""
    query, key, value = (x.shape[-1] for x in call.operands)
    alignment = gemm_alignment(call.capability, call.query.dtype)
    fits = query == key and all(size > 0 and size % alignment == 0 for size in (query, value))
    return None if fits else f"head sizes must be multiples of {alignment}, the same for query and key"


def _efficient_offset(call: AttentionCall) -> str | None:
    """check_data_ptr_alignment_mem_efficient (2026; before it, such a call failed in the kernel)."""
    if call.capability < (8, 0):
        return None
    alignment = gemm_alignment(call.capability, call.query.dtype)
    return (
        None if all(x.offset % alignment == 0 for x in call.operands) else "an operand's storage offset is not aligned"
    )


def gemm_alignment(capability: Capability, dtype: torch.dtype) -> int:
    """Elements to which head sizes must align (``minimum_gemm_alignment``)."""
    half = dtype in _HALF
    smallest = 4 if capability >= (8, 0) else 1
    tensor_cores = capability >= (8, 0) or (capability >= (7, 0) and half)
    return max(smallest, 128 // (16 if half else 32)) if tensor_cores else smallest


def _not_empty(call: AttentionCall) -> str | None:
    """check_nonzero_sequence_lengths_dense."""
    return "a sequence is empty" if 0 in (call.query.shape[-2], call.key.shape[-2]) else None


def _last_stride(call: AttentionCall) -> str | None:
    """check_last_dim_stride_equals_1_dense<ignore_singleton_dim=true>."""
    if call.query.shape[-1] != 1 and any(x.stride[-1] != 1 for x in call.operands):
        return "the last dimension of q, k and v must have stride 1"
    return _mask_stride(call)


def _last_stride_strict(call: AttentionCall) -> str | None:
    """check_last_dim_stride_equals_1_dense<ignore_singleton_dim=false>."""
    if any(x.stride[-1] != 1 for x in call.operands):
        return "the last dimension of q, k and v must have stride 1"
    return _mask_stride(call)


def _mask_stride(call: AttentionCall) -> str | None:
    return "the last dimension of attn_mask must have stride 1" if call.mask and call.mask.stride[-1] != 1 else None


def _batch_and_heads(call: AttentionCall) -> str | None:
    """check_batch_size_and_num_heads_dense<supports_gqa=true>."""
    return _heads(call, grouped=True, same_key_value=True)


def _batch_and_heads_apart(call: AttentionCall) -> str | None:
    """check_batch_size_and_num_heads_dense<supports_gqa=true, requires_same_num_heads=false>."""
    return _heads(call, grouped=True, same_key_value=False)


def _batch_and_equal_heads(call: AttentionCall) -> str | None:
    """check_batch_size_and_num_heads_dense<supports_gqa=false>."""
    return _heads(call, grouped=False, same_key_value=True)


def _heads(call: AttentionCall, *, grouped: bool, same_key_value: bool) -> str | None:
    query, key, value = (x.shape[-3] for x in call.operands)
    if len({x.shape[0] for x in call.operands}) > 1:
        return "query, key and value must have one batch size"
    if not (call.enable_gqa and grouped):
        return None if query == key == value else f"head counts {query}, {key}, {value} differ"
    if same_key_value and key != value:
        return "key and value must have equally many heads"
    if query % key or (not same_key_value and query % value):
        return "the heads of key and value must divide those of the query"
    return None


def _cudnn_release(call: AttentionCall) -> str | None:
    """can_use_cudnn_attention, its first lines."""
    if call.cudnn_version < 90000:
        return "cuDNN is older than 9.0"
    if call.dropout > 0 and 91100 < call.cudnn_version < 91400:
        return "cuDNN 9.11 to 9.13 has no dropout in attention"
    return None


def _cudnn_deterministic(call: AttentionCall) -> str | None:
    """check_cudnn_deterministic."""
    return "it is not deterministic" if call.deterministic else None


def _cudnn_dropout(call: AttentionCall) -> str | None:
    """check_cudnn_dropout (pull request 174245, torch 2.12; before it, cuDNN rounded)."""
    if not since("2.12") or (call.dropout * 16).is_integer():
        return None
    return "cuDNN rounds dropout to multiples of 1/16"


def _cudnn_sizes(call: AttentionCall) -> str | None:
    """check_cudnn_tensor_shapes."""
    if max(call.query.shape[:2]) > _CUDNN_LARGEST_DIM:
        return f"batch size and heads must be at most {_CUDNN_LARGEST_DIM}"
    size, value_size = call.query.shape[3], call.value.shape[3]
    limit = cudnn_head_limit(call.capability, call.cudnn_version, size, value_size)
    if max(size, value_size) > limit:
        return f"head sizes must be at most {limit}"
    if size % 8 or value_size % 8:
        return "head sizes must be multiples of 8"
    if call.key.shape[2] == 1 or (call.query.shape[2] == 1 and call.dropout > 0):
        return "it does not take sequences of length 1"
    return None


def cudnn_head_limit(capability: Capability, cudnn_version: int, size: int, value_size: int) -> int:
    """Largest head size of cuDNN attention (``check_cudnn_tensor_shapes``).

    The version is as ``torch.backends.cudnn.version()`` has it.
    """
    if capability != (9, 0) and capability[0] != 10:
        return 128
    if cudnn_version > 92200 or (capability == (9, 0) and 90501 <= cudnn_version < 91100):
        return 256
    return 192 if cudnn_version >= 91100 and (size, value_size) == (192, 128) else 128


def _dtype(call: AttentionCall, allowed: tuple[torch.dtype, ...]) -> str | None:
    """check_tensor_dtype."""
    dtypes = {x.dtype for x in call.operands}
    if len(dtypes) == 1 and dtypes <= set(allowed):
        return None
    return (
        f"q, k and v must share one dtype of {', '.join(map(str, allowed))}, not {', '.join(sorted(map(str, dtypes)))}"
    )


def _sm(call: AttentionCall) -> str:
    return "".join(map(str, call.capability))


CHECKS: Mapping[AttentionKernel, tuple[Check, ...]] = {
    "flash": (
        _four_dimensional,
        _no_mask,
        _flash_head_size,
        _flash_hardware,
        _flash_training_head_size,
        _flash_causal,
        _low_precision,
        _batch_and_heads,
        _not_empty,
        _last_stride,
    ),
    "efficient": (
        _efficient_hardware,
        _four_dimensional,
        _efficient_head_size,
        _efficient_offset,
        _not_empty,
        _last_stride_strict,
        _batch_and_equal_heads,
        _efficient_dtype,
    ),
    "cudnn": (
        _cudnn_release,
        _four_dimensional,
        _cudnn_deterministic,
        _low_precision,
        _mask_shape,
        _flash_hardware,
        _cudnn_dropout,
        _not_empty,
        _last_stride,
        _batch_and_heads_apart,
        _cudnn_sizes,
    ),
    "math": (),
}
"""The filters of ``can_use_flash_attention``, ``can_use_mem_efficient_attention``, ``can_use_cudnn_attention``."""
