"""The one context manager that installs all of CUDA's ways and takes them away again."""

import contextlib
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field

from memplan.job.spec import Attention
from memplan.seam.dispatcher import fake_kernels, kernels
from memplan.tracing.cuda.attention import cuda_attention
from memplan.tracing.cuda.attention_call import AttentionKernel
from memplan.tracing.cuda.autocast import cuda_autocast
from memplan.tracing.cuda.dropout import KERNELS as DROPOUT
from memplan.tracing.cuda.embedding_bag import SHAPES as EMBEDDING_BAG
from memplan.tracing.cuda.flex_attention import FlexAttention, cuda_flex_attention
from memplan.tracing.cuda.histogram import SHAPES as HISTOGRAM
from memplan.tracing.cuda.norms import cuda_norms
from memplan.tracing.cuda.optimizers import cuda_optimizers
from memplan.tracing.cuda.own_data import own_data
from memplan.tracing.cuda.placement import Placement, device_rewriting
from memplan.tracing.cuda.rnn import cuda_rnn
from memplan.tracing.cuda.runtime import cuda_runtime
from memplan.tracing.cuda.softmax import KERNELS as SOFTMAX
from memplan.tracing.cuda.streams import Streams
from memplan.tracing.loss_results import LOSSES
from memplan.tracing.records import DeviceTraits


@dataclass(frozen=True, slots=True, kw_only=True)
class CudaSemantics:
    """What a recorder asks while CUDA semantics are installed."""

    device: DeviceTraits
    """The GPU that is played."""
    placement: Placement
    """Tells device from host; the recorder sets ``placement.is_host`` and asks ``placement.rule``."""
    streams: Streams
    """Which stream work goes to; the recorder sets ``streams.ledger``."""
    flex_attention: FlexAttention
    """Was there any?"""
    attention_kernels: Counter[AttentionKernel] = field(default_factory=Counter)
    """How often each attention kernel was taken."""


@contextlib.contextmanager
def cuda_semantics(device: DeviceTraits, *, attention: Attention = "auto") -> Iterator[CudaSemantics]:
    """Let torch code on fake CPU tensors run the ops that CUDA would run.

    The device's kind is ``cuda``. ``auto`` chooses the kernel of scaled_dot_product_attention as CUDA would. What the
    recorder asks is yielded; torch is as before when the context ends.

    Raises:
        EstimateError: From within, where the forced attention kernel cannot run a call.
    """
    with contextlib.ExitStack() as stack:
        streams = stack.enter_context(cuda_runtime(device))
        flex = stack.enter_context(cuda_flex_attention())
        semantics = CudaSemantics(device=device, placement=Placement(), streams=streams, flex_attention=flex)
        stack.enter_context(cuda_optimizers())
        stack.enter_context(kernels({**DROPOUT, **SOFTMAX}))
        stack.enter_context(fake_kernels({**EMBEDDING_BAG, **HISTOGRAM, **LOSSES}))
        stack.enter_context(cuda_norms())
        stack.enter_context(cuda_rnn())
        stack.enter_context(cuda_attention(device.capability, attention, lambda kernel: _count(semantics, kernel)))
        stack.enter_context(cuda_autocast())
        stack.enter_context(device_rewriting(semantics.placement))
        stack.enter_context(own_data())
        yield semantics


def _count(semantics: CudaSemantics, kernel: AttentionKernel) -> None:
    semantics.attention_kernels[kernel] += 1
