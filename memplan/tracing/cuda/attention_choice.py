"""Which kernel CUDA's scaled_dot_product_attention takes: a pure function of the call, the order and the switches.

Source: aten/src/ATen/native/transformers/cuda/sdp_utils.cpp ``select_sdp_backend``, ``priority_order`` (main of 2026).
"""

from collections.abc import Mapping
from typing import NamedTuple

from memplan.tracing.cuda.attention_call import AttentionCall, AttentionKernel, Capability
from memplan.tracing.cuda.attention_checks import CHECKS

DEFAULT_ORDER: tuple[AttentionKernel, ...] = ("flash", "efficient", "math", "cudnn")
"""aten/src/ATen/Context.h ``sdp_priority_order``."""
CUDNN_FIRST_ORDER: tuple[AttentionKernel, ...] = ("cudnn", "flash", "efficient", "math")
"""sdp_utils.cpp ``priority_order`` where ``check_prefer_cudnn_attention``."""

CUDNN_RELEASES: tuple[tuple[tuple[int, int], int], ...] = (
    ((2, 11), 91900),
    ((2, 8), 91002),
    ((2, 7), 90501),
    ((2, 0), 90100),
)
"""First torch release → the cuDNN that its default CUDA wheel brings (nvidia-cudnn pins of the published wheels)."""


class Choice(NamedTuple):
    """The outcome: a kernel, or None where every enabled one is impossible."""

    kernel: AttentionKernel | None
    reasons: Mapping[AttentionKernel, str]
    """Why each kernel that comes earlier in the order was passed over."""


def default_cudnn_version(torch_version: str) -> int:
    """The cuDNN version of the CUDA build of a torch release (``torch.__version__``)."""
    major, minor = (int(part) for part in torch_version.split(".")[:2])
    return next(version for first, version in CUDNN_RELEASES if (major, minor) >= first)


def default_order(capability: Capability, cudnn_version: int) -> tuple[AttentionKernel, ...]:
    """The priority order that CUDA starts with (``priority_order``, ``check_prefer_cudnn_attention``)."""
    return CUDNN_FIRST_ORDER if cudnn_version > 91500 and capability[0] in (9, 10) else DEFAULT_ORDER


def choose_kernel(
    call: AttentionCall,
    *,
    order: tuple[AttentionKernel, ...] = DEFAULT_ORDER,
    enabled: frozenset[AttentionKernel] = frozenset(DEFAULT_ORDER),
) -> Choice:
    """The first enabled kernel in the order that can run the call (``select_sdp_backend``).

    Enabled are those of ``torch.backends.cuda.enable_*_sdp`` and ``torch.nn.attention.sdpa_kernel``.
    """
    reasons: dict[AttentionKernel, str] = {}
    for kernel in order:
        reason = "it is disabled" if kernel not in enabled else objection(kernel, call)
        if reason is None:
            return Choice(kernel, reasons)
        reasons[kernel] = reason
    return Choice(None, reasons)


def objection(kernel: AttentionKernel, call: AttentionCall) -> str | None:
    """Why a kernel cannot run a call; None if it can. The math decomposition always can."""
    return next((reason for check in CHECKS[kernel] if (reason := check(call)) is not None), None)
