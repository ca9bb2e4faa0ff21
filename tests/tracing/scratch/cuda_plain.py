"""Ops that have a kernel of their own on CUDA and take nothing there beside their results.

Together with the rules and the gaps of ``cuda_table`` this is a verdict on every functional op whose CPU and CUDA
kernels differ by PyTorch's own list of operators (``native_functions.yaml``); a test holds it complete. Each group was
read in the source that stands over it (main of 2026). Dense copies of strided operands, which most kernels make, are
ruled where training is likely to meet them (``cuda_images``) and left out elsewhere.
"""

_BOOKKEEPING = """
    empty empty_strided resize_ set_ record_stream _local_scalar_dense _assert_async _efficientzerotensor
    _fused_sdp_choice _use_cudnn_ctc_loss _use_miopen_ctc_loss _validate_compressed_sparse_indices
"""
"""Results alone, pinned memory, or nothing."""

# cuda/Dropout.cu, RNN.cu, WeightNorm.cu, PersistentSoftmax.cuh, SoftMax.cu masked_softmax_cuda, Activation.cpp and the
# Activation*Kernel.cu, Embedding.cu, EmbeddingBag.cu (forward), Indexing.cu index_select_out_cuda,
# TensorTransformations.cu.
_ELEMENTWISE = """
    native_dropout native_dropout_backward _fused_dropout _masked_scale rrelu_with_noise rrelu_with_noise_
    _thnn_fused_lstm_cell _thnn_fused_lstm_cell_backward_impl _thnn_fused_gru_cell _thnn_fused_gru_cell_backward
    _weight_norm_interface _weight_norm_interface_backward _masked_softmax _masked_softmax_backward
    glu_backward log_sigmoid_forward log_sigmoid_backward gelu gelu_backward add tril triu trace
    masked_fill_ index_select index_add index_reduce cat bucketize searchsorted tril_indices triu_indices
    _embedding_bag _embedding_bag_forward_only _embedding_bag_per_sample_weights_backward
    batch_norm_elemt batch_norm_backward_elemt batch_norm_gather_stats batch_norm_gather_stats_with_counts
    batch_norm_update_stats _convert_indices_from_coo_to_csr _convert_indices_from_csr_to_coo
"""

# cuda/DistributionTemplates.h, Distributions.cu, CUDAScalar.cu, SummaryOps.cu (histograms of shared or global memory).
_DRAWS_AND_COUNTS = """
    _standard_gamma _standard_gamma_grad _dirichlet_grad _sample_dirichlet poisson binomial bincount histc
    _philox_key_fold_in _philox_key_split _philox_normal_ _philox_uniform_ _fill_mem_eff_dropout_mask_
"""

# cuda/NLLLoss*.cu, MultiMarginLoss.cu, MultiLabelMarginCriterion.cu, Loss.cu, LossCTC.cu (forward).
_LOSSES = """
    binary_cross_entropy_backward nll_loss_forward nll_loss_backward nll_loss2d_backward _ctc_loss
    multi_margin_loss multi_margin_loss_backward multilabel_margin_loss_forward multilabel_margin_loss_backward
"""

# cuda/*Pool*.cu, MaxUnpooling.cu, UpSample*.cu, ReflectionPad.cu, ReplicationPadding.cu, GridSampler.cpp,
# cudnn/GridSampler.cpp, cudnn/AffineGridGenerator.cpp, DepthwiseConv*.cu.
_IMAGES = """
    adaptive_max_pool2d adaptive_max_pool2d_backward adaptive_max_pool3d adaptive_max_pool3d_backward
    _adaptive_avg_pool3d _adaptive_avg_pool3d_backward avg_pool3d avg_pool3d_backward
    fractional_max_pool2d fractional_max_pool2d_backward fractional_max_pool3d fractional_max_pool3d_backward
    max_pool3d_with_indices max_pool3d_with_indices_backward max_unpool2d max_unpool3d
    reflection_pad1d reflection_pad1d_backward reflection_pad2d reflection_pad2d_backward
    reflection_pad3d reflection_pad3d_backward replication_pad1d replication_pad1d_backward
    replication_pad2d replication_pad2d_backward replication_pad3d replication_pad3d_backward
    upsample_linear1d upsample_linear1d_backward upsample_nearest1d upsample_nearest1d_backward
    upsample_bicubic2d upsample_bicubic2d_backward upsample_nearest3d upsample_nearest3d_backward
    upsample_trilinear3d upsample_trilinear3d_backward _upsample_bicubic2d_aa _upsample_bicubic2d_aa_backward
    _upsample_bilinear2d_aa _upsample_bilinear2d_aa_backward _upsample_nearest_exact1d
    _upsample_nearest_exact1d_backward _upsample_nearest_exact2d _upsample_nearest_exact2d_backward
    _upsample_nearest_exact3d _upsample_nearest_exact3d_backward
    grid_sampler_2d grid_sampler_2d_backward grid_sampler_3d grid_sampler_3d_backward cudnn_grid_sampler
    cudnn_grid_sampler_backward cudnn_affine_grid_generator cudnn_affine_grid_generator_backward
    _conv_depthwise2d conv_depthwise3d
"""

# cuda/Fused*Kernel.cu, AmpKernels.cu, MultiTensorApply.cuh (kernel arguments), CatArrayBatchedCopy's chunked kin
# (_chunk_cat: one table of a few KiB), int4mm.cu and its kin.
_OPTIMIZERS_AND_QUANTIZED = """
    _fused_adagrad_ _fused_adam_ _fused_adamw_ _fused_sgd_ _amp_update_scale_ _chunk_cat
    _amp_foreach_non_finite_check_and_unscale_ _make_per_channel_quantized_tensor
    _make_per_tensor_quantized_tensor _convert_weight_to_int4pack _weight_int4pack_mm _weight_int8pack_mm
"""

PLAIN = frozenset(
    " ".join((_BOOKKEEPING, _ELEMENTWISE, _DRAWS_AND_COUNTS, _LOSSES, _IMAGES, _OPTIMIZERS_AND_QUANTIZED)).split()
)
"""Names without namespace and overload."""

_PASSED_AS_ARGUMENTS = "_foreach_"
"""Prefix of kernels over lists, which take their lists as arguments; the few with scratch have rules."""


def is_plain(name: str) -> bool:
    """Does the op of this name (without namespace and overload) take no scratch?"""
    return name in PLAIN or name.startswith(_PASSED_AS_ARGUMENTS)
