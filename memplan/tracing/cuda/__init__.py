"""CUDA semantics on fake CPU tensors: what CUDA would run where CPU takes another way.

How a recorder uses it (its dispatch mode lies above the fake mode; the order of these contexts does not matter)::

    with fake_world(), cuda_semantics(traits, attention="auto") as cuda, recorder:
        cuda.placement.is_host = recorder.references.is_host  # Tensor -> bool, for tensors made before
        ...                                             # build, forward, backward, optimizer step

In ``__torch_dispatch__`` an op that allocates asks ``cuda.placement.rule(func, args, kwargs)``: ``device``, ``host``,
or None for "where its tensor arguments lie, on the device if any does". Seeds and offsets of the attention kernels
come back as fake CPU tensors like all else; they are 8- and 16-byte device allocations.

Under ``torch.inference_mode`` composite ops reach a dispatch mode whole; take them apart with ``decompose`` below and
not with ``OpOverload.decompose``, which prefers Python decompositions (``dropout`` in eval mode would clone its
input). ``assumptions_of`` the ops that ran belong in the report.
"""

from memplan.seam.dispatcher import decompose
from memplan.tracing.cuda.assumptions import assumptions_of
from memplan.tracing.cuda.semantics import CudaSemantics, cuda_semantics

__all__ = ["CudaSemantics", "assumptions_of", "cuda_semantics", "decompose"]
