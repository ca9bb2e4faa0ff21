"""Ops that take nothing on the CPU beside their results: they were run, and the allocator saw nothing else.

``benchmarks/cpu_verdicts.py`` ran torch's own samples of its operators, forward, backward, in place and over lists,
every optimizer, and a few calls of its own, in float32, bfloat16 and complex64 (torch 2.13.0, AVX2, November 2026); no
call of these took more than a few bytes beside its results (of operands in rows: ``cpu_in_rows`` knows who copies
others). ``benchmarks/results/cpu_verdicts.csv`` holds the counts, and a test holds this list against them. An overload
or a variant that writes into its argument and was not met has the verdict of those that were.
"""

_RUN = """
    _adaptive_avg_pool2d _adaptive_avg_pool2d_backward _adaptive_avg_pool3d _adaptive_avg_pool3d_backward
    _amp_foreach_non_finite_check_and_unscale _amp_update_scale _assert_async _cdist_backward _cdist_forward
    _coalesced _conj _conj_physical _ctc_loss _embedding_bag _fused_adagrad _fused_adam _fused_adamw _fused_sgd
    _indices _is_all_true _is_any_true _linalg_check_errors _linalg_slogdet _linalg_solve_ex _linalg_svd
    _local_scalar_dense _log_softmax _log_softmax_backward_data _nnz _pack_padded_sequence _pdist_backward
    _pdist_forward _prelu_kernel _prelu_kernel_backward _safe_softmax _softmax _softmax_backward_data
    _sparse_coo_tensor_with_dims_and_tensors _to_copy _unsafe_view _upsample_bilinear2d_aa_backward
    _upsample_nearest_exact1d_backward _upsample_nearest_exact2d_backward _upsample_nearest_exact3d_backward
    _values abs acos acosh adaptive_max_pool2d adaptive_max_pool2d_backward adaptive_max_pool3d
    adaptive_max_pool3d_backward add addbmm addcdiv addcmul addmm addmv addr alias alias_copy all amax amin
    aminmax angle any arange argmax argmin as_strided as_strided_copy as_strided_scatter asin asinh atan atan2
    atanh avg_pool2d avg_pool2d_backward avg_pool3d avg_pool3d_backward baddbmm bernoulli binary_cross_entropy
    binary_cross_entropy_backward binary_cross_entropy_with_logits bincount bitwise_and bitwise_not bitwise_or
    block_diag bmm bucketize cat cauchy ceil celu cholesky cholesky_inverse cholesky_solve clamp clamp_max
    clamp_min clone col2im complex conj_physical constant_pad_nd copy copysign cos cosh count_nonzero cummax
    cummin cumprod deg2rad dense_dim detach diag_embed diagonal diagonal_backward diagonal_copy diagonal_scatter
    digamma div dot elu elu_backward embedding embedding_dense_backward empty empty_like empty_permuted
    empty_strided eq equal erf erfc erfinv exp expand expand_copy expm1 exponential eye fill flip floor
    floor_divide fmax fmin fmod frac fractional_max_pool2d fractional_max_pool2d_backward fractional_max_pool3d
    fractional_max_pool3d_backward frexp full full_like ge gelu gelu_backward geometric geqrf glu glu_backward
    grid_sampler_2d grid_sampler_2d_backward grid_sampler_3d grid_sampler_3d_backward gt hardshrink
    hardshrink_backward hardsigmoid hardsigmoid_backward hardswish hardswish_backward hardtanh hardtanh_backward
    hash_tensor heaviside histogram huber_loss huber_loss_backward hypot i0 igamma igammac im2col index
    index_copy index_fill index_select is_coalesced isnan isneginf isposinf le leaky_relu leaky_relu_backward
    lerp lgamma lift lift_fresh lift_fresh_copy linalg_cholesky_ex linalg_cross linalg_lu_factor_ex linalg_lu_solve
    linalg_qr linalg_solve_triangular linspace log log10 log1p log2 log_normal log_sigmoid_backward
    log_sigmoid_forward logaddexp logaddexp2 logcumsumexp logical_and logical_not logical_or logical_xor logit
    logit_backward logspace logsumexp lt lu_unpack masked_fill max max_pool2d_with_indices
    max_pool2d_with_indices_backward max_pool3d_with_indices max_pool3d_with_indices_backward max_unpool2d
    max_unpool3d maximum mean median min minimum mish mish_backward mm mode mse_loss mse_loss_backward mul
    multi_margin_loss multi_margin_loss_backward multilabel_margin_loss_backward multilabel_margin_loss_forward
    mv nan_to_num nanmedian nansum narrow_copy native_batch_norm native_batch_norm_backward native_dropout
    native_group_norm native_group_norm_backward native_layer_norm native_layer_norm_backward ne neg new_empty
    new_empty_strided new_full new_ones new_zeros nextafter nll_loss2d_backward nll_loss2d_forward
    nll_loss_backward nll_loss_forward nonzero nonzero_static norm normal ones ones_like ormqr permute
    permute_copy pixel_shuffle pixel_unshuffle polar polygamma pow prod put rad2deg rand rand_like randint
    randint_like randn randn_like random randperm reciprocal reflection_pad1d reflection_pad1d_backward relu
    remainder repeat replication_pad1d replication_pad1d_backward replication_pad2d replication_pad2d_backward
    resize resize_as rot90 round rrelu_with_noise_backward rsqrt rsub scalar_tensor searchsorted select
    select_backward select_scatter sgn sigmoid sigmoid_backward sign signbit silu silu_backward sin sinc sinh
    slice slice_backward slice_scatter smooth_l1_loss smooth_l1_loss_backward soft_margin_loss softplus
    softplus_backward softshrink softshrink_backward sort sparse_dim special_bessel_j0 special_i1 split
    split_with_sizes split_with_sizes_copy sqrt squeeze squeeze_copy stack std std_mean sub sum t t_copy take
    tan tanh tanh_backward threshold threshold_backward topk trace transpose transpose_copy triangular_solve
    tril triu trunc unbind unbind_copy unfold unfold_backward unfold_copy uniform unsafe_split unsqueeze
    unsqueeze_copy upsample_bicubic2d_backward upsample_bilinear2d upsample_bilinear2d_backward
    upsample_linear1d_backward upsample_nearest1d_backward upsample_nearest2d_backward
    upsample_nearest3d_backward upsample_trilinear3d_backward var var_mean vdot view view_as_complex
    view_as_real view_copy where xlogy zero zeros zeros_like
"""
"""Names without namespace, overload and the underscore of in-place variants."""

_BOOKKEEPING = """
    _has_compatible_shallow_copy_type is_pinned item set sym_numel sym_size sym_stride
"""
"""Ops that read or exchange what describes a tensor."""

_LISTS = "_foreach_"
"""Prefix of ops over lists, which the CPU runs one tensor at a time."""

_SILENT = frozenset(
    {"prim", "prims", "torch", "profiler", "c10d", "_c10d_functional", "fsdp", "_dtensor", "streams", "memplan"}
)
"""Namespaces of bookkeeping and of communication, whose buffers are accounted for elsewhere."""

MEASURED = frozenset(_RUN.split())
"""Names without namespace, overload and the underscore of in-place variants."""

PLAIN = MEASURED | frozenset(_BOOKKEEPING.split())
"""All plain names."""


def is_plain(name: str) -> bool:
    """Is an op known to take nothing?

    Args:
        name: ``aten.add_.Tensor``.
    """
    namespace, _, rest = name.partition(".")
    operator = rest.partition(".")[0]
    if namespace != "aten":
        return namespace in _SILENT
    return operator.startswith(_LISTS) or operator.rstrip("_") in PLAIN
