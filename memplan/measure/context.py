"""What a step takes of a device beside the allocator, by the libraries that it uses: each thread has its own handles.

A profile's ``context_bytes`` are those of a training step that uses cuBLAS and cuDNN in forward and in backward. A step
that leaves one of them out, or has no backward, takes a handle less. On an H100 (torch 2.11.0+cu130, cuDNN 9.19, driver
580.159.04, 2026-11-23) this gave all of 47 workloads to 4 MiB: 64 MiB for a handle of cuBLAS, 8 MiB for one of cuDNN.
Which kernels of PyTorch's own a step loads made no difference beyond that.
"""

from dataclasses import replace

from memplan.hardware.profile import GpuProfile
from memplan.tracing.records import Trace

_THREADS = 2
"""Forward's and backward's."""
_CUBLAS = frozenset({
    "mm", "addmm", "addmm_", "_addmm_activation", "bmm", "baddbmm", "baddbmm_", "linear", "addbmm", "mv", "addmv",
    "dot", "vdot", "_int_mm", "_scaled_mm", "_scaled_mm_v2", "_euclidean_dist",
})  # fmt: skip
"""Operators that ask for cuBLAS's handle (``memplan.tracing.scratch.cuda_gemm``)."""
_CUDNN = frozenset({
    "convolution", "convolution_backward", "cudnn_convolution", "cudnn_convolution_transpose", "cudnn_batch_norm",
    "cudnn_batch_norm_backward", "_cudnn_rnn", "_cudnn_rnn_backward", "_scaled_dot_product_cudnn_attention",
    "_scaled_dot_product_cudnn_attention_backward",
})  # fmt: skip
"""Operators that ask for cuDNN's."""


def context_of(profile: GpuProfile, trace: Trace) -> GpuProfile:
    """The profile with the context of this step; as it is where nobody has measured what a handle takes."""
    if not (profile.cublas_handle_bytes or profile.cudnn_handle_bytes):
        return profile
    uses = {(op.name.split(".")[1], op.phase == "backward") for op in trace.ops if op.name.count(".") > 1}
    absent = (_THREADS - _handles(uses, _CUBLAS)) * profile.cublas_handle_bytes
    absent += (_THREADS - _handles(uses, _CUDNN)) * profile.cudnn_handle_bytes
    context = profile.context_bytes - absent
    low = min(profile.context_low_bytes, context)
    return replace(profile, context_bytes=context, context_low_bytes=low, cublas_handle_bytes=0, cudnn_handle_bytes=0)


def _handles(uses: set[tuple[str, bool]], operators: frozenset[str]) -> int:
    return len({in_backward for name, in_backward in uses if name in operators})
