"""scaled_dot_product_attention as CUDA runs it: the kernel is chosen as there, and its padding made as there.

Source: aten/src/ATen/native/transformers/attention.cpp ``scaled_dot_product_attention``, ``preprocess_mask``, ``pad_last_dim``,
``convert_boolean_attn_mask`` (torch 2.6 to 2.13). Outputs are shaped by torch's own meta kernels, which also serve backward.
The math decomposition is torch's own composite: it runs the same ops on both devices.
"""

import contextlib
from collections.abc import Callable, Iterator
from typing import Literal

import torch
from torch.nn.functional import pad

from memplan.errors import EstimateError
from memplan.trace.cuda.attention_choice import (
    CUDNN_FIRST_ORDER,
    DEFAULT_ORDER,
    AttentionCall,
    AttentionKernel,
    Operand,
    choose_kernel,
    default_cudnn_version,
    default_order,
    objection,
)
from memplan.trace.cuda.replacements import Kernel, kernels

Attention = Literal["auto", "flash", "efficient", "cudnn", "math"]

FLASH_ALIGNMENT = 8
"""attention.cpp ``pad_last_dim<8>``: head sizes are padded to a multiple."""
MASK_ALIGNMENT = 8
"""attention.cpp ``preprocess_mask``, ``mem_eff_alignment``: strides of an additive mask, in elements."""
CUDNN_MASKED = -65504.0
"""attention.cpp ``convert_boolean_attn_mask_cudnn``."""

_BACKENDS: dict[int, AttentionKernel] = {0: "math", 1: "flash", 2: "efficient", 3: "cudnn"}
"""ATen/SDPBackend.h ``SDPBackend``."""
_CODES = {kernel: code for code, kernel in _BACKENDS.items()}


@contextlib.contextmanager
def cuda_attention(
    capability: tuple[int, int], attention: Attention, note: Callable[[AttentionKernel], None] | None = None
) -> Iterator[None]:
    """Let scaled_dot_product_attention take CUDA's way.

    Args:
        capability: Compute capability of the GPU.
        attention: ``auto`` chooses as CUDA would; a kernel's name forces it.
        note: Told the kernel of every call.

    Yields:
        Nothing.
    """
    cudnn_version = default_cudnn_version(torch.__version__)

    def scaled_dot_product_attention(
        query: torch.Tensor,
        key: torch.Tensor,
        value: torch.Tensor,
        attn_mask: torch.Tensor | None = None,
        dropout_p: float = 0.0,
        is_causal: bool = False,
        *,
        scale: float | None = None,
        enable_gqa: bool = False,
    ) -> torch.Tensor:
        call = AttentionCall(
            query=Operand.of(query),
            key=Operand.of(key),
            value=Operand.of(value),
            mask=None if attn_mask is None else Operand.of(attn_mask),
            dropout=dropout_p,
            is_causal=is_causal,
            enable_gqa=enable_gqa,
            grad_enabled=torch.is_grad_enabled(),
            deterministic=_strictly_deterministic(),
            capability=capability,
            cudnn_version=cudnn_version,
        )
        kernel = kernel_for(call, attention)
        if note is not None:
            note(kernel)
        match kernel:
            case "flash":
                return _flash(query, key, value, dropout_p, is_causal, scale)
            case "efficient":
                return _efficient(query, key, value, attn_mask, call.trains, dropout_p, is_causal, scale)
            case "cudnn":
                return _cudnn(query, key, value, attn_mask, call.trains, dropout_p, is_causal, scale)
            case "math":
                return _math(query, key, value, attn_mask, dropout_p, is_causal, scale, enable_gqa)

    table: dict[str, Kernel] = {"scaled_dot_product_attention": scaled_dot_product_attention}
    with _priority(default_order(capability, cudnn_version)), kernels(table):
        yield


def kernel_for(call: AttentionCall, attention: Attention) -> AttentionKernel:
    """The kernel that runs a call under torch's present switches.

    Args:
        call: Shapes, dtypes, device.
        attention: As in ``cuda_attention``.

    Raises:
        EstimateError: The forced kernel cannot run the call, or no enabled one can.
    """
    if attention != "auto":
        reason = objection(attention, call)
        if reason is not None:
            raise EstimateError(
                f"scaled_dot_product_attention cannot run on the {attention} kernel: {reason}.",
                hint="Use attention=auto, or a kernel that takes these inputs.",
            )
        return attention
    choice = choose_kernel(call, order=_order(), enabled=_enabled())
    if choice.kernel is None:
        why = "; ".join(f"{kernel}: {reason}" for kernel, reason in choice.reasons.items())
        raise EstimateError(
            f"No enabled kernel can run this scaled_dot_product_attention ({why}).",
            hint="CUDA would stop with 'No available kernel'. Enable the math kernel or change the inputs.",
        )
    return choice.kernel


def _flash(
    query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, dropout: float, is_causal: bool, scale: float | None
) -> torch.Tensor:
    size = query.size(-1)
    # The scale belongs to the head size before padding.
    scale = size**-0.5 if scale is None else scale
    out: torch.Tensor = torch.ops.aten._scaled_dot_product_flash_attention(  # noqa: SLF001
        _padded(query, FLASH_ALIGNMENT),
        _padded(key, FLASH_ALIGNMENT),
        _padded(value, FLASH_ALIGNMENT),
        dropout,
        is_causal,
        False,  # noqa: FBT003 (return_debug_mask, positional in the schema)
        scale=scale,
    )[0]
    return out if out.size(-1) == size else out.narrow(-1, 0, size)


def _efficient(
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    mask: torch.Tensor | None,
    trains: bool,
    dropout: float,
    is_causal: bool,
    scale: float | None,
) -> torch.Tensor:
    bias = _additive(mask, query.dtype, -float("inf"))
    if bias is not None:
        if not _aligned(bias):
            # The copy is padded and the view on it keeps the mask's own length.
            bias = _padded(bias, MASK_ALIGNMENT, always=True).narrow(-1, 0, bias.size(-1))
        bias = bias.expand(query.size(0), query.size(1), query.size(2), key.size(2))
    out: torch.Tensor = torch.ops.aten._scaled_dot_product_efficient_attention(  # noqa: SLF001
        query, key, value, bias, trains, dropout, is_causal, scale=scale
    )[0]
    return out


def _cudnn(
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    mask: torch.Tensor | None,
    trains: bool,
    dropout: float,
    is_causal: bool,
    scale: float | None,
) -> torch.Tensor:
    bias = _additive(mask, query.dtype, CUDNN_MASKED)
    out: torch.Tensor = torch.ops.aten._scaled_dot_product_cudnn_attention(  # noqa: SLF001
        query, key, value, bias, trains, dropout, is_causal, False, scale=scale  # noqa: FBT003
    )[0]
    return out


def _math(
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    mask: torch.Tensor | None,
    dropout: float,
    is_causal: bool,
    scale: float | None,
    enable_gqa: bool,
) -> torch.Tensor:
    bias = _additive(mask, query.dtype, -float("inf"))
    out: torch.Tensor = torch.ops.aten._scaled_dot_product_attention_math(  # noqa: SLF001
        query, key, value, bias, dropout, is_causal, scale=scale, enable_gqa=enable_gqa
    )[0]
    return out


def _additive(mask: torch.Tensor | None, dtype: torch.dtype, masked: float) -> torch.Tensor | None:
    """``convert_boolean_attn_mask``: a boolean mask becomes one in the query's dtype."""
    if mask is None or mask.dtype != torch.bool:
        return mask
    return torch.where(mask, 0.0, torch.scalar_tensor(masked, dtype=dtype, device=mask.device))


def _aligned(mask: torch.Tensor) -> bool:
    """``aligned_tensor``."""
    return mask.stride(-1) == 1 and all(step % MASK_ALIGNMENT == 0 for step in mask.stride()[:-1])


def _padded(tensor: torch.Tensor, alignment: int, *, always: bool = False) -> torch.Tensor:
    """Zeros at the end of the last dimension up to a multiple (``always``: ``pad_bias`` adds a whole one if it fits)."""
    rest = tensor.size(-1) % alignment
    return pad(tensor, (0, alignment - rest)) if rest or always else tensor


def _strictly_deterministic() -> bool:
    return torch.are_deterministic_algorithms_enabled() and not torch.is_deterministic_algorithms_warn_only_enabled()


def _enabled() -> frozenset[AttentionKernel]:
    """torch's switches, which ``sdpa_kernel`` sets too."""
    cuda = torch.backends.cuda
    switches: dict[AttentionKernel, bool] = {
        "flash": cuda.flash_sdp_enabled(),
        "efficient": cuda.mem_efficient_sdp_enabled(),
        "cudnn": cuda.cudnn_sdp_enabled(),
        "math": cuda.math_sdp_enabled(),
    }
    return frozenset(kernel for kernel, enabled in switches.items() if enabled)


def _order() -> tuple[AttentionKernel, ...]:
    """torch's present order, which ``sdpa_kernel(set_priority=True)`` changes."""
    codes = torch._C._get_sdp_priority_order()  # noqa: SLF001
    return tuple(_BACKENDS[code] for code in codes if code in _BACKENDS)


@contextlib.contextmanager
def _priority(order: tuple[AttentionKernel, ...]) -> Iterator[None]:
    """Start from the order that CUDA would start from, unless the user has set another."""
    former = torch._C._get_sdp_priority_order()  # noqa: SLF001
    if order == CUDNN_FIRST_ORDER and _order() == DEFAULT_ORDER:
        torch._C._set_sdp_priority_order([*(_CODES[kernel] for kernel in order)])  # noqa: SLF001
    try:
        yield
    finally:
        torch._C._set_sdp_priority_order(former)  # noqa: SLF001
