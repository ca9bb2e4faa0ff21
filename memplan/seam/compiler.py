"""Dynamo and Inductor."""

from typing import TYPE_CHECKING

from memplan.seam.find import lent
from memplan.seam.patch import used

USED = (
    *used("torch._dynamo.backends.common", "aot_autograd", why="--compile aot_eager is the backend of that name"),
    *used("torch._dynamo.source", "LocalSource", why="a region is captured as Dynamo captures it"),
    *used(
        "torch._inductor", "config", why="nothing is measured, cached or compiled", source="torch/_inductor/config.py"
    ),
    *used("torch._inductor.compile_fx", "compile_fx", "compile_fx_inner", why="Inductor's buffers are known"),
    *used(
        "torch._inductor.custom_graph_pass", "CustomPartitionerFn", why="Inductor cuts a graph as planned", since="2.8"
    ),
    *used("torch._inductor.decomposition", "select_decomp_table", why="graphs are decomposed as for the device"),
    *used("torch._inductor.output_code", "CompiledFxGraph", why="graphs of equal blocks are lowered once"),
    *used("torch._inductor.runtime.hints", "DeviceProperties", why="figures of another device are forgotten"),
    *used(
        "torch._inductor.utils",
        "clear_inductor_caches",
        "set_tracing_context_output_strides",
        why="graphs of equal blocks are lowered once",
    ),
)
"""Rows of the table."""

DEFINED_IN = ("torch._dynamo.", "torch._inductor.", "torch._functorch.", "triton.")
"""Beginnings of the modules that define what compilers raise."""
WRITTEN = {
    "from torch._C import _cuda_getCurrentRawStream as get_raw_stream": "",
    "torch.cuda._DeviceGuard(": "device_guard(",
    "torch.ops.higher_order.run_": "run_",
}
"""What Inductor writes and a build of torch for the CPU does not have, or a recorder cannot run → what stands in."""

if TYPE_CHECKING:
    from torch._dynamo.backends.common import aot_autograd
    from torch._dynamo.source import LocalSource
    from torch._inductor import config
    from torch._inductor.compile_fx import compile_fx, compile_fx_inner
    from torch._inductor.decomposition import select_decomp_table
    from torch._inductor.output_code import CompiledFxGraph
    from torch._inductor.runtime.hints import DeviceProperties
    from torch._inductor.utils import clear_inductor_caches, set_tracing_context_output_strides

    CustomPartitionerFn: type | None
else:
    __getattr__ = lent(USED)
