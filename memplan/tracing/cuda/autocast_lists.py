"""CUDA's autocast lists: which ops run in the low dtype, which in fp32, which promote.

A frozen table rather than one read from the installed header: it can be reviewed, works for installations without
headers, and a test holds it against both ``ATen/autocast_mode.h`` and the dispatcher of the installed torch. Which of
these ops a torch release casts is asked of its own dispatcher (an op has a kernel for ``AutocastCUDA`` or not), so the
table may name ops of any release.

Source: aten/src/ATen/autocast_mode.h ``AT_FORALL_*`` and autocast_mode.cpp ``TORCH_LIBRARY_IMPL(aten, Autocast)``,
torch 2.6 (overloads of named tensors, gone since), 2.13 and 2.15.
"""

LOWER_PRECISION = [
    "_convolution.deprecated",
    "_convolution",
    "conv1d",
    "conv2d",
    "conv3d",
    "conv_tbc",
    "conv_transpose1d",
    "conv_transpose2d.input",
    "conv_transpose3d.input",
    "convolution",
    "cudnn_convolution",
    "cudnn_convolution_transpose",
    "prelu",
    "addmm",
    "addmv",
    "addr",
    "matmul",
    "einsum",
    "mm",
    "mv",
    "linalg_vecdot",
    "linear",
    "addbmm",
    "baddbmm",
    "bmm",
    "chain_matmul",
    "linalg_multi_dot",
    "_thnn_fused_lstm_cell",
    "_thnn_fused_gru_cell",
    "lstm_cell",
    "gru_cell",
    "rnn_tanh_cell",
    "rnn_relu_cell",
    "_scaled_dot_product_flash_attention",
    "scaled_dot_product_attention",
]
"""``AT_FORALL_LOWER_PRECISION_FP`` and the two cuDNN ops of autocast_mode.cpp."""

FP32 = [
    "acos",
    "asin",
    "cosh",
    "erfinv",
    "exp",
    "expm1",
    "log",
    "log10",
    "log2",
    "log1p",
    "reciprocal",
    "rsqrt",
    "sinh",
    "tan",
    "pow.Tensor_Scalar",
    "pow.Tensor_Tensor",
    "pow.Scalar",
    "softplus",
    "layer_norm",
    "native_layer_norm",
    "rms_norm",
    "group_norm",
    "frobenius_norm.dim",
    "nuclear_norm",
    "nuclear_norm.dim",
    "cosine_similarity",
    "poisson_nll_loss",
    "cosine_embedding_loss",
    "nll_loss",
    "nll_loss2d",
    "hinge_embedding_loss",
    "kl_div",
    "l1_loss",
    "smooth_l1_loss",
    "huber_loss",
    "mse_loss",
    "margin_ranking_loss",
    "multilabel_margin_loss",
    "soft_margin_loss",
    "triplet_margin_loss",
    "multi_margin_loss",
    "binary_cross_entropy_with_logits",
    "dist",
    "pdist",
    "cdist",
    "renorm",
    "logsumexp",
    "upsample_nearest1d",
    "_upsample_nearest_exact1d",
    "upsample_nearest2d",
    "_upsample_nearest_exact2d",
    "upsample_nearest3d",
    "_upsample_nearest_exact3d",
    "upsample_linear1d",
    "upsample_bilinear2d",
    "_upsample_bilinear2d_aa",
    "upsample_trilinear3d",
    "upsample_bicubic2d",
    "_upsample_bicubic2d_aa",
    "linalg_matrix_sqrth",
]
"""``AT_FORALL_FP32``, and the matrix root of torch 2.15, which is in no list of the header but comes out as fp32."""

FP32_SET_OPT_DTYPE = [
    "prod",
    "prod.dim_int",
    "prod.dim_Dimname",
    "softmax.int",
    "softmax.Dimname",
    "log_softmax.int",
    "log_softmax.Dimname",
    "cumprod",
    "cumprod.dimname",
    "cumsum",
    "cumsum.dimname",
    "linalg_vector_norm",
    "linalg_matrix_norm",
    "linalg_matrix_norm.str_ord",
    "sum",
    "sum.dim_IntList",
    "sum.dim_DimnameList",
]
"""``AT_FORALL_FP32_SET_OPT_DTYPE``: no cast, but ``dtype=float32`` unless the caller names a dtype."""

FP32_APPEND_DTYPE = {
    "norm.Scalar": "norm.ScalarOpt_dtype",
    "norm.ScalarOpt_dim": "norm.ScalarOpt_dim_dtype",
    "norm.names_ScalarOpt_dim": "norm.names_ScalarOpt_dim_dtype",
}
"""``AT_FORALL_DIFFERENT_REDISPATCH_SIGNATURE``: op → the overload with a dtype that runs instead."""

PROMOTE = [
    "addcdiv",
    "addcmul",
    "atan2",
    "bilinear",
    "cross",
    "dot",
    "vdot",
    "grid_sampler",
    "index_put",
    "tensordot",
    "scatter_add",
]
"""``AT_FORALL_PROMOTE``: to fp32 if any argument is fp32."""

BANNED = ("binary_cross_entropy",)
"""autocast_mode.cpp ``binary_cross_entropy_banned``."""
