"""scaled_dot_product_attention as CUDA runs it: the kernel is chosen as there, and its padding made as there.

Source: aten/src/ATen/native/transformers/attention.cpp ``scaled_dot_product_attention``, ``preprocess_mask``,
``pad_last_dim``, ``convert_boolean_attn_mask`` (torch 2.6 to 2.13). Outputs are shaped by torch's own meta kernels,
which also serve backward. The math decomposition is torch's own composite: it runs the same ops on both devices.
"""

import contextlib
import sys
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import torch
from torch.nn.functional import pad

from memplan.errors import EstimateError, UsageError
from memplan.job.spec import Attention
from memplan.seam.dispatcher import kernels
from memplan.seam.operators import get_sdp_priority_order, set_sdp_priority_order
from memplan.tracing.aliasing import mask_added_in_place
from memplan.tracing.cuda.attention_call import AttentionCall, AttentionKernel, Operand
from memplan.tracing.cuda.attention_choice import (
    CUDNN_FIRST_ORDER,
    DEFAULT_ORDER,
    choose_kernel,
    default_cudnn_version,
    default_order,
    objection,
)
from memplan.tracing.cuda.release import torch_release

FLASH_ALIGNMENT = 8
"""attention.cpp ``pad_last_dim<8>``: head sizes are padded to a multiple."""
MASK_ALIGNMENT = 8
"""attention.cpp ``preprocess_mask``, ``mem_eff_alignment``: strides of an additive mask, in elements."""
CUDNN_MASKED = -65504.0
"""attention.cpp ``convert_boolean_attn_mask_cudnn``."""

_BACKENDS: dict[int, AttentionKernel] = {0: "math", 1: "flash", 2: "efficient", 3: "cudnn"}
"""ATen/SDPBackend.h ``SDPBackend``."""
_CODES = {kernel: code for code, kernel in _BACKENDS.items()}


class Arguments(NamedTuple):
    """The arguments of ``aten::scaled_dot_product_attention``."""

    query: torch.Tensor
    key: torch.Tensor
    value: torch.Tensor
    mask: torch.Tensor | None
    dropout: float
    is_causal: bool
    scale: float | None
    enable_gqa: bool


@contextlib.contextmanager
def cuda_attention(
    capability: tuple[int, int], attention: Attention, note: Callable[[AttentionKernel], None] | None = None
) -> Iterator[None]:
    """Let scaled_dot_product_attention take CUDA's way.

    ``auto`` chooses as CUDA would; a kernel's name forces it. ``note`` is told the kernel of every call.
    """
    cudnn_version = default_cudnn_version(torch_release())

    def scaled_dot_product_attention(  # noqa: PLR0917 (the schema's order)
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
        arguments = Arguments(query, key, value, attn_mask, dropout_p, is_causal, scale, enable_gqa)
        call = _describe(arguments, capability, cudnn_version)
        kernel = kernel_for(call, attention)
        if kernel == "math" and is_causal and _is_shared(query):
            raise _no_shared_mask()
        if note is not None:
            note(kernel)
        return _run(kernel, arguments, trains=call.trains)

    table = {"scaled_dot_product_attention": scaled_dot_product_attention}
    with _priority(default_order(capability, cudnn_version)), kernels(table):
        yield


def kernel_for(call: AttentionCall, attention: Attention) -> AttentionKernel:
    """The kernel that runs a call under torch's present switches.

    Raises:
        EstimateError: The forced kernel cannot run the call, or no enabled one can.
    """
    if attention != "auto":
        reason = objection(attention, call)
        if reason is not None:
            raise EstimateError(
                f"scaled_dot_product_attention cannot run on the {attention} kernel: {reason}",
                hint="use --attention auto, or a kernel that takes these inputs",
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


def _is_shared(tensor: torch.Tensor) -> bool:
    """Is it a DTensor? Where nothing has imported them, there is none."""
    library = sys.modules.get("torch.distributed.tensor")
    return library is not None and isinstance(tensor, library.DTensor)


def _no_shared_mask() -> UsageError:
    """Of ``_scaled_dot_product_attention_math``, which makes its causal mask without asking what its inputs are."""
    return UsageError(
        "ranks cannot share causal attention on the math kernel: torch would add a plain mask to their DTensors",
        where="--parallel",
        hint="let a fused kernel run: grouped heads have one in 16 bits alone (--precision bf16 or bf16-mixed)",
    )


def _describe(arguments: Arguments, capability: tuple[int, int], cudnn_version: int) -> AttentionCall:
    return AttentionCall(
        query=Operand.of(arguments.query),
        key=Operand.of(arguments.key),
        value=Operand.of(arguments.value),
        mask=None if arguments.mask is None else Operand.of(arguments.mask),
        dropout=arguments.dropout,
        is_causal=arguments.is_causal,
        enable_gqa=arguments.enable_gqa,
        grad_enabled=torch.is_grad_enabled(),
        deterministic=torch.are_deterministic_algorithms_enabled()
        and not torch.is_deterministic_algorithms_warn_only_enabled(),
        capability=capability,
        cudnn_version=cudnn_version,
    )


def _run(kernel: AttentionKernel, arguments: Arguments, *, trains: bool) -> torch.Tensor:
    match kernel:
        case "flash":
            return _flash(arguments)
        case "efficient":
            return _efficient(arguments, trains=trains)
        case "cudnn":
            return _cudnn(arguments, trains=trains)
        case "math":
            return _math(arguments)


def _flash(call: Arguments) -> torch.Tensor:
    size = call.query.size(-1)
    # The scale belongs to the head size before padding.
    scale = size**-0.5 if call.scale is None else call.scale
    padded = [_padded(tensor) for tensor in (call.query, call.key, call.value)]
    return_debug_mask = False
    out: torch.Tensor = torch.ops.aten._scaled_dot_product_flash_attention(
        *padded, call.dropout, call.is_causal, return_debug_mask, scale=scale
    )[0]
    return out if out.size(-1) == size else out.narrow(-1, 0, size)


def _efficient(call: Arguments, *, trains: bool) -> torch.Tensor:
    bias = _additive(call, -float("inf"))
    if bias is not None:
        if not _aligned(bias):
            # ``pad_bias``: a padded copy, and a view on it of the mask's own length.
            size = bias.size(-1)
            bias = pad(bias, (0, MASK_ALIGNMENT - size % MASK_ALIGNMENT)).narrow(-1, 0, size)
        bias = bias.expand(*call.query.shape[:3], call.key.size(2))
    out: torch.Tensor = torch.ops.aten._scaled_dot_product_efficient_attention(
        call.query, call.key, call.value, bias, trains, call.dropout, call.is_causal, scale=call.scale
    )[0]
    return out


def _cudnn(call: Arguments, *, trains: bool) -> torch.Tensor:
    bias = _additive(call, CUDNN_MASKED)
    return_debug_mask = False
    out: torch.Tensor = torch.ops.aten._scaled_dot_product_cudnn_attention(
        call.query,
        call.key,
        call.value,
        bias,
        trains,
        call.dropout,
        call.is_causal,
        return_debug_mask,
        scale=call.scale,
    )[0]
    return out


def _math(call: Arguments) -> torch.Tensor:
    bias = _additive(call, -float("inf"))
    with mask_added_in_place():
        out: torch.Tensor = torch.ops.aten._scaled_dot_product_attention_math(
            call.query,
            call.key,
            call.value,
            bias,
            call.dropout,
            call.is_causal,
            scale=call.scale,
            enable_gqa=call.enable_gqa,
        )[0]
    return out


def _additive(call: Arguments, masked: float) -> torch.Tensor | None:
    """``convert_boolean_attn_mask``: a boolean mask becomes one in the query's dtype."""
    mask = call.mask
    if mask is None or mask.dtype != torch.bool:
        return mask
    return torch.where(mask, 0.0, torch.scalar_tensor(masked, dtype=call.query.dtype, device=mask.device))


def _aligned(mask: torch.Tensor) -> bool:
    """``aligned_tensor``."""
    return mask.stride(-1) == 1 and all(step % MASK_ALIGNMENT == 0 for step in mask.stride()[:-1])


def _padded(tensor: torch.Tensor) -> torch.Tensor:
    """``pad_last_dim``."""
    rest = tensor.size(-1) % FLASH_ALIGNMENT
    return pad(tensor, (0, FLASH_ALIGNMENT - rest)) if rest else tensor


def _enabled() -> frozenset[AttentionKernel]:
    """The switches of torch.backends.cuda, which ``sdpa_kernel`` sets too."""
    backends: Any = torch.backends.cuda
    switches: dict[AttentionKernel, bool] = {
        "flash": backends.flash_sdp_enabled(),
        "efficient": backends.mem_efficient_sdp_enabled(),
        "cudnn": backends.cudnn_sdp_enabled(),
        "math": backends.math_sdp_enabled(),
    }
    return frozenset(kernel for kernel, enabled in switches.items() if enabled)


def _order() -> tuple[AttentionKernel, ...]:
    """The order now set, which ``sdpa_kernel(set_priority=True)`` changes."""
    return tuple(_BACKENDS[code] for code in get_sdp_priority_order() if code in _BACKENDS)


@contextlib.contextmanager
def _priority(order: tuple[AttentionKernel, ...]) -> Iterator[None]:
    """Start from the order that CUDA would start from, unless the user has set another."""
    former = get_sdp_priority_order()
    if order == CUDNN_FIRST_ORDER and _order() == DEFAULT_ORDER:
        rest = [code for code in former if code not in _BACKENDS]
        set_sdp_priority_order([*(_CODES[kernel] for kernel in order), *rest])
    try:
        yield
    finally:
        set_sdp_priority_order(former)
