"""Every CUDA scratch rule by op name, and the ops whose scratch nobody outside the GPU can know."""

from collections.abc import Iterable

from memplan.trace.scratch.cuda_efficient_attention import EFFICIENT_ATTENTION_RULES
from memplan.trace.scratch.cuda_embedding import EMBEDDING_RULES
from memplan.trace.scratch.cuda_flash_attention import FLASH_ATTENTION_RULES
from memplan.trace.scratch.cuda_gemm import GEMM_RULES
from memplan.trace.scratch.cuda_index import INDEX_RULES
from memplan.trace.scratch.cuda_loss import LOSS_RULES
from memplan.trace.scratch.cuda_norm import NORM_RULES
from memplan.trace.scratch.cuda_optimizer import OPTIMIZER_RULES
from memplan.trace.scratch.cuda_pointwise import POINTWISE_RULES
from memplan.trace.scratch.cuda_reduction import REDUCTION_RULES
from memplan.trace.scratch.cuda_shapes import first_tensor
from memplan.trace.scratch.cuda_sort import SORT_RULES
from memplan.trace.scratch.rules import Call, Rule, RuleTable, Script


def _on_device(rule: Rule) -> Rule:
    """Kernels on host tensors take nothing from the device."""

    def guarded(call: Call) -> Script | None:
        tensor = first_tensor(call)
        if tensor is None or call.is_host(tensor):
            return None
        return rule(call)

    return guarded


_FAMILIES: tuple[RuleTable, ...] = (
    REDUCTION_RULES,
    INDEX_RULES,
    EMBEDDING_RULES,
    GEMM_RULES,
    FLASH_ATTENTION_RULES,
    EFFICIENT_ATTENTION_RULES,
    NORM_RULES,
    LOSS_RULES,
    SORT_RULES,
    OPTIMIZER_RULES,
    POINTWISE_RULES,
)

CUDA_RULES: RuleTable = {name: _on_device(rule) for family in _FAMILIES for name, rule in family.items()}
"""Op name → rule."""

NOT_COVERED: tuple[str, ...] = (
    # cuDNN chooses algorithms and their workspaces by plans that only it can make.
    "aten.convolution",
    "aten.convolution_backward",
    "aten.cudnn_convolution",
    "aten._cudnn_rnn",
    "aten._cudnn_rnn_backward",
    "aten.cudnn_batch_norm",
    "aten.cudnn_batch_norm_backward",
    "aten._cudnn_ctc_loss",
    "aten._scaled_dot_product_cudnn_attention",
    "aten._scaled_dot_product_cudnn_attention_backward",
    # PyTorch's own kernel reduces channels-last inputs through buffers that have not been worked out.
    "aten.native_batch_norm_backward",
    # CUB's temporaries depend on tiles tuned by architecture.
    "aten.topk",
    "aten.kthvalue",
    "aten._unique2",
    "aten.unique_dim",
    "aten.unique_consecutive",
    "aten.nonzero",
    "aten.masked_select",
    "aten.multinomial",
    "aten.randperm",
    "aten.cumsum",
    "aten.cumprod",
    "aten.histc",
    "aten.bincount",
    "aten._embedding_bag_dense_backward",
    # cuFFT, cuSOLVER and MAGMA work areas.
    "aten._fft_r2c",
    "aten._fft_c2r",
    "aten._fft_c2c",
    "aten._linalg_svd",
    "aten._linalg_eigh",
    "aten.linalg_qr",
    "aten.linalg_lu_factor_ex",
    "aten.linalg_cholesky_ex",
    "aten.linalg_inv_ex",
    "aten._linalg_solve_ex",
    # CUTLASS grouped products.
    "aten._grouped_mm",
    "aten._scaled_grouped_mm",
)
"""Ops (without overload) whose kernels take scratch that the rules leave out: the report names those that it meets."""

_NOT_COVERED = frozenset(NOT_COVERED)


def not_covered(names: Iterable[str]) -> tuple[str, ...]:
    """Which of these ops take scratch that the rules leave out.

    Args:
        names: Full op names, repeated as they come.

    Returns:
        Names without overload, each once, sorted.
    """
    without_overload = {name.rsplit(".", 1)[0] for name in names}
    return tuple(sorted(without_overload & _NOT_COVERED))
