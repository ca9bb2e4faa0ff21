"""``torch.compile`` as Inductor compiles it: its own buffers, reused and freed as its own generated code does.

No GPU and no compiler is needed, since what allocates in compiled code is Python. The data's path:

1. ``region`` stands where a compiled module or function is called. It takes the call apart: tensors (arguments,
   parameters, buffers) are inputs, all else is part of the key under which the compiled code is found again.
2. ``capture`` gives the call to ``torch._inductor.compile_fx`` as a graph of one opaque node, with the recorder away.
   AOTAutograd traces through it on the same fake tensors, with the device's semantics (attention's kernel, autocast,
   dropout), and partitions it; Inductor's passes, lowering and scheduler run unchanged.
3. ``lowering`` lets Inductor believe in the GPU: each graph is relabelled from the fakes' CPU to CUDA just before it is
   lowered, and what asks a driver or a compiler is answered here.
4. ``wrapper`` loads the Python that Inductor writes (``buf0 = empty_strided_cuda(…)``, ``del buf0``, ``buf1 = buf0``,
   ``extern_kernels.mm(…, out=buf1)``) with allocations that go through PyTorch's dispatcher and with kernels that do
   nothing.
5. AOTAutograd's own runtime calls that code on fake tensors, forward and, as an autograd node, backward; the recorder
   is back on the dispatcher and sees every allocation, and reference counts free them as in a real run.

Dynamo is left out: it cannot run under the modes of a trace. What it would break graphs at, or what cannot be traced
for other reasons, runs as eager code and is named in the report.
"""

import warnings
from collections.abc import Callable
from importlib.util import find_spec
from typing import TYPE_CHECKING

import torch

from memplan.errors import UsageError
from memplan.job.spec import Compile
from memplan.seam.replace import Replacement, replaced

if TYPE_CHECKING:
    from memplan.tracing.inductor.region import Regions
    from memplan.tracing.recorder import Recorder

ASSUMED = {
    "inductor": "buffers of compiled code are those that Inductor of torch {torch} writes",
    "aot_eager": "what compiled code keeps for backward is what the partitioner of torch {torch} chooses",
}
"""Choice of a compiler → what is taken for granted."""
NOT_MODELLED = (
    "torch.compile: what compiling itself takes (autotuning, warm-up), CUDA graphs, its options and modes, "
    "and dynamic shapes: each shape is compiled for itself"
)


def regions(
    choice: Compile, recorder: "Recorder", assume: Callable[[str], None], leave_out: Callable[[str], None]
) -> "Regions":
    """What compiles, for a trace that is to be compiled.

    ``assume`` takes what was taken for granted, ``leave_out`` what the figures leave out.

    Raises:
        UsageError: This installation cannot compile for GPUs.
    """
    if choice == "inductor" and recorder.device.kind == "cuda" and find_spec("triton") is None:
        raise UsageError(
            "--compile inductor needs the package triton: without it Inductor writes no code for GPUs",
            hint="pip install triton, or --compile eager for the figures of code that is not compiled",
        )
    # Inductor of torch 2.6 asks for AMD's driver when it is imported for an AMD card.
    with warnings.catch_warnings(), replaced((Replacement("torch.version.hip", None),)):
        # Inductor's own imports are deprecated here and there.
        warnings.simplefilter("ignore")
        from memplan.tracing.inductor.lowering import aot_eager, inductor
        from memplan.tracing.inductor.region import Regions

    compiler = inductor(recorder.device) if choice == "inductor" else aot_eager()
    assume(ASSUMED[choice].format(torch=torch.__version__))
    leave_out(NOT_MODELLED)
    return Regions(recorder, leave_out, compiler)
