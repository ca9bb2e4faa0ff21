"""Every CUDA scratch rule by op name, and the ops whose scratch nobody outside the GPU can know."""

from collections.abc import Iterable

from memplan.tracing.scratch.cuda_batch_norm import BATCH_NORM_RULES
from memplan.tracing.scratch.cuda_convolution import CONVOLUTION_RULES
from memplan.tracing.scratch.cuda_cudnn_attention import CUDNN_ATTENTION_RULES
from memplan.tracing.scratch.cuda_efficient_attention import EFFICIENT_ATTENTION_RULES
from memplan.tracing.scratch.cuda_embedding import EMBEDDING_RULES
from memplan.tracing.scratch.cuda_flash_attention import FLASH_ATTENTION_RULES
from memplan.tracing.scratch.cuda_gemm import GEMM_RULES
from memplan.tracing.scratch.cuda_grouped import GROUPED_RULES
from memplan.tracing.scratch.cuda_images import IMAGE_RULES
from memplan.tracing.scratch.cuda_index import INDEX_RULES
from memplan.tracing.scratch.cuda_loss import LOSS_RULES
from memplan.tracing.scratch.cuda_norm import NORM_RULES
from memplan.tracing.scratch.cuda_optimizer import OPTIMIZER_RULES
from memplan.tracing.scratch.cuda_pointwise import POINTWISE_RULES
from memplan.tracing.scratch.cuda_recurrent import RECURRENT_RULES
from memplan.tracing.scratch.cuda_reduction import REDUCTION_RULES
from memplan.tracing.scratch.cuda_scan import SCAN_RULES
from memplan.tracing.scratch.cuda_shapes import first_tensor
from memplan.tracing.scratch.cuda_sort import SORT_RULES
from memplan.tracing.scratch.cuda_spectral import SPECTRAL_RULES
from memplan.tracing.scratch.rules import Call, Rule, RuleTable, Script


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
    CONVOLUTION_RULES,
    FLASH_ATTENTION_RULES,
    EFFICIENT_ATTENTION_RULES,
    CUDNN_ATTENTION_RULES,
    GROUPED_RULES,
    NORM_RULES,
    LOSS_RULES,
    SORT_RULES,
    SCAN_RULES,
    BATCH_NORM_RULES,
    IMAGE_RULES,
    SPECTRAL_RULES,
    OPTIMIZER_RULES,
    POINTWISE_RULES,
    RECURRENT_RULES,
)

CUDA_RULES: RuleTable = {name: _on_device(rule) for family in _FAMILIES for name, rule in family.items()}
"""Op name → rule."""

_CLOSED = """
    cudnn_convolution cudnn_convolution_transpose cudnn_convolution_relu cudnn_convolution_add_relu
    _cudnn_rnn_flatten_weight _cudnn_init_dropout_state
    cudnn_batch_norm cudnn_batch_norm_backward _batch_norm_with_update batch_norm_backward _cudnn_ctc_loss
    _cudnn_attention_forward _cudnn_attention_backward
    miopen_batch_norm miopen_batch_norm_backward miopen_convolution miopen_convolution_add_relu
    miopen_convolution_relu miopen_convolution_transpose miopen_ctc_loss miopen_depthwise_convolution miopen_rnn
    miopen_rnn_backward
"""
"""What these take only cuDNN and MIOpen know."""

_UNREAD = """
    _efficient_attention_forward _efficient_attention_backward _flash_attention_forward_no_dropout_inplace
    _flash_attention_forward.quantized _scaled_dot_product_flash_attention.quantized
    _native_multi_head_attention _transformer_encoder_layer_fwd _transform_bias_rescale_qkv
    _triton_multi_head_attention _triton_scaled_dot_attention
    _nested_from_padded _jagged_to_padded_dense_forward _padded_dense_to_jagged_forward
    _nested_tensor_from_mask _pdist_backward segment_reduce _segment_reduce_backward dist conv_tbc
    _to_sparse _to_sparse_csr _to_sparse_csc _to_sparse_bsr _to_sparse_bsc _sparse_addmm _coalesced
    _unique _unique2 unique_dim unique_consecutive unique_dim_consecutive nonzero_static mode randperm
    embedding_renorm_ _fused_moving_avg_obs_fq_helper _mixed_dtypes_linear
    _slow_conv2d_forward _slow_conv2d_backward slow_conv_dilated2d slow_conv_dilated3d slow_conv_transpose2d
    slow_conv_transpose3d
    _cslt_compress _cslt_sparse_mm _cslt_sparse_mm_search _to_sparse_semi_structured
    _sparse_semi_structured_addmm _sparse_semi_structured_apply _sparse_semi_structured_apply_dense
    _sparse_semi_structured_linear _sparse_semi_structured_mm _sparse_semi_structured_tile
    _scaled_grouped_mm _scaled_grouped_mm_v2
"""
"""Kernels of PyTorch and CUTLASS whose scratch has not been worked out, or depends on the data."""

_LINEAR_ALGEBRA = """
    _linalg_svd _linalg_eigh linalg_eig linalg_eigvals _linalg_eigvals linalg_qr linalg_lu linalg_lu_factor_ex
    linalg_lu_solve linalg_ldl_factor_ex linalg_ldl_solve linalg_cholesky_ex cholesky cholesky_inverse
    _cholesky_solve_helper linalg_inv_ex _linalg_solve_ex _linalg_det _linalg_slogdet linalg_lstsq
    linalg_solve_triangular triangular_solve linalg_pinv cholesky_solve linalg_householder_product ormqr geqrf
    linalg_matrix_exp
"""
"""cuSOLVER's, cuBLAS's and MAGMA's work areas, and copies in column order."""

NOT_COVERED: tuple[str, ...] = tuple(f"aten.{name}" for name in " ".join((_CLOSED, _UNREAD, _LINEAR_ALGEBRA)).split())
"""Ops (without overload, where it does not matter) whose kernels take scratch that the rules leave out: the report
names those that it meets."""

_NOT_COVERED = frozenset(NOT_COVERED)


def not_covered(names: Iterable[str]) -> tuple[str, ...]:
    """Which of these ops take scratch that the rules leave out.

    Args:
        names: Full op names, repeated as they come.

    Returns:
        Names without overload (where it does not matter), each once, sorted.
    """
    ran = frozenset(names)
    without_overload = {name.rsplit(".", 1)[0] for name in ran}
    return tuple(sorted((without_overload | ran) & _NOT_COVERED))
