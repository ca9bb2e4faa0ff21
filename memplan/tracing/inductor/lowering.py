"""Inductor as a library: one graph lowered for a GPU that is not there, by a process that compiles no kernel."""

import gc
import os
import warnings
from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from contextvars import ContextVar
from types import SimpleNamespace
from typing import Any
from unittest.mock import patch

import torch
import torch.fx

from memplan.files.scratch import scratch_folder
from memplan.seam.compiler import (
    CompiledFxGraph,
    DeviceProperties,
    aot_autograd,
    clear_inductor_caches,
    compile_fx,
    compile_fx_inner,
    config,
    select_decomp_table,
    set_tracing_context_output_strides,
)
from memplan.seam.fake import FakeTensor, TracingContext, detect_fake_mode, tracing
from memplan.seam.functorch import config as functorch_config
from memplan.seam.functorch import force_non_lazy_backward_lowering, min_cut_rematerialization_partition
from memplan.seam.modes import DisableTorchFunction, disable_current_modes
from memplan.seam.patches.compiled import (
    COMPILERS,
    CUDA_INTERFACE,
    HAS_TRITON,
    INIT_GPU_CONTEXT,
    LOAD_CODE,
    WAIT,
)
from memplan.seam.pytree import tree_leaves, tree_map
from memplan.seam.replace import Replacement, replaced
from memplan.tracing.inductor.guards import guardless
from memplan.tracing.inductor.wrapper import idle, loader
from memplan.tracing.records import DeviceTraits

_CUDA = torch.device("cuda", 0)
_CONFIG = {
    # What is cached on disk would be found again by real runs.
    "fx_graph_cache": False,
    "fx_graph_remote_cache": False,
    "force_disable_caches": True,
    # No child processes: kernels are not compiled.
    "compile_threads": 1,
    # Instruction sets are otherwise found by compiling C++.
    "cpp.vec_isa_ok": True,
    # Whether padding a matrix pays is measured on the GPU.
    "shape_padding": False,
}
_AT_ONCE = {} if force_non_lazy_backward_lowering is None else {"force_non_lazy_backward_lowering": True}
"""Backward is lowered with forward: if it cannot be, the call can still run as eager code. Otherwise torch lowers it
when it first runs; older torch always does."""
_DECIDED_BY_DEVICE = (torch.ops.aten.mm.default, torch.ops.aten.bmm.default, torch.ops.aten.addmm.default)
"""Decompositions that look whether a tensor lies on the CPU, where the fakes do."""


Compiler = Callable[[torch.fx.GraphModule, Sequence[torch.Tensor]], Any]
"""A graph and its inputs to code that is called with such inputs, AOTAutograd's runtime around it."""
_Known = dict[Hashable, CompiledFxGraph]
"""Graph to its code."""


def inductor(device: DeviceTraits) -> Compiler:
    """``compile_fx``, as ``torch.compile`` calls it, with graphs relabelled for the device."""
    known: _Known = {}

    def inner(module: torch.fx.GraphModule, inputs: Sequence[Any], **options: Any) -> Any:
        key = _key(module, options)
        if key in known:
            set_tracing_context_output_strides(inputs, known[key])
            return known[key]
        # Backward may be lowered when it first runs, with all modes on.
        with disable_current_modes(), DisableTorchFunction(), lowering(device), _leaving_no_garbage():
            if device.kind == "cuda":
                inputs = _relabelled(module, inputs)
            code = compile_fx_inner(module, inputs, **options)
        if isinstance(code, CompiledFxGraph):
            known[key] = code
        return code

    decompositions = dict(select_decomp_table())
    if device.kind == "cuda":
        for op in _DECIDED_BY_DEVICE:
            decompositions.pop(op, None)

    def compiler(graph: torch.fx.GraphModule, tensors: Sequence[torch.Tensor]) -> Any:
        with functorch_config.patch(_AT_ONCE), _leaving_no_garbage():
            return compile_fx(graph, list(tensors), inner_compile=inner, decompositions=decompositions)

    return compiler


def aot_eager() -> Compiler:
    """The backend ``aot_eager``: AOTAutograd's two graphs, their ops run one by one."""
    backend = aot_autograd(
        # torch/_dynamo/backends/debugging.py ``aot_eager``
        fw_compiler=_as_written,
        bw_compiler=_as_written,
        partition_fn=min_cut_rematerialization_partition,
        keep_inference_input_mutations=True,
    )

    def compiler(graph: torch.fx.GraphModule, tensors: Sequence[torch.Tensor]) -> Any:
        # Dynamo has such a context, and ``compile_fx`` makes one.
        context = TracingContext(detect_fake_mode(tensors))
        with functorch_config.patch(_AT_ONCE), _leaving_no_garbage(), tracing(context):
            return backend(graph, list(tensors))

    return compiler


def _as_written(module: torch.fx.GraphModule, _: Sequence[Any]) -> Callable[..., Any]:
    """A graph's ops one by one; each tensor is freed after its last use, as the graph's own code does."""

    def run(arguments: list[Any]) -> Any:
        # The devices that its ops name are those of the fakes, and no wish of the program's.
        with DisableTorchFunction():
            return torch.fx.Interpreter(module).boxed_run(arguments)

    run._boxed_call = True  # type: ignore[attr-defined]
    return run


def _key(module: torch.fx.GraphModule, options: Mapping[str, Any]) -> Hashable:
    """Equal for graphs of equal blocks: ops and their arguments, shapes and strides, and which inputs are weights."""
    nodes = tuple((node.format_node(), str(node.args), str(node.meta.get("val"))) for node in module.graph.nodes)
    strides = tuple(
        value.stride() if isinstance(value, torch.Tensor) else None
        for node in module.graph.nodes
        for value in tree_leaves(node.meta.get("val"))
    )
    return nodes, strides, options.get("is_backward"), tuple(options.get("static_input_idxs", ()))


def _relabelled(module: torch.fx.GraphModule, inputs: Sequence[Any]) -> list[Any]:
    """Say of all fake tensors in a graph, and of what its nodes are told, that they are on CUDA."""

    def moved(value: Any) -> Any:
        if isinstance(value, FakeTensor):
            with value.fake_mode:
                return torch.empty_strided(value.shape, value.stride(), dtype=value.dtype, device=_CUDA)
        return _CUDA if isinstance(value, torch.device) else value

    for node in module.graph.nodes:
        if "val" in node.meta:
            node.meta["val"] = tree_map(moved, node.meta["val"])
        node.args, node.kwargs = (tree_map(moved, part) for part in (node.args, node.kwargs))
        node.meta.pop("tensor_meta", None)
    return [moved(value) for value in inputs]


@contextmanager
def lowering(device: DeviceTraits) -> Iterator[None]:
    """Answer for the device and for its compilers while graphs are lowered."""
    with ExitStack() as stack:
        # Advice on speed, and what a cache on disk could not do.
        stack.enter_context(warnings.catch_warnings())
        warnings.simplefilter("ignore")
        stack.enter_context(_own_caches())
        stack.enter_context(config.patch(_CONFIG))
        stack.enter_context(replaced((*_idle_compilers(device.kind), *_gpu(device))))
        yield


_COMPILING: ContextVar[bool] = ContextVar("_COMPILING", default=False)
"""Is something being compiled? Whether objects are frozen does not tell: an estimate freezes what is imported."""


@contextmanager
def _leaving_no_garbage() -> Iterator[None]:
    """Collect what compiling leaves behind, and only that.

    Exceptions that torch catches and keeps in cycles (torch/_inductor/pattern_matcher.py ``FailedMatch``) keep the
    frames that were running, down to the step's own: its batch and gradients would live on, since traces collect no
    garbage.
    """
    if _COMPILING.get():
        # Backward, lowered inside of what is being compiled.
        yield
        return
    before = _COMPILING.set(True)
    was_frozen = gc.get_freeze_count() > 0
    gc.freeze()
    try:
        yield
    finally:
        gc.collect()
        if not was_frozen:  # Else whoever froze before gives all of it back.
            gc.unfreeze()
        _COMPILING.reset(before)


@contextmanager
def _own_caches() -> Iterator[None]:
    """Nothing of another device or of a real run is found, and nothing is left: neither files nor a GPU's figures."""
    with scratch_folder() as folder, patch.dict(os.environ, {"TORCHINDUCTOR_CACHE_DIR": str(folder)}):
        _forget()
        try:
            yield
        finally:
            _forget()


def _forget() -> None:
    clear_inductor_caches()
    DeviceProperties.create.cache_clear()


def _idle_compilers(kind: str) -> Iterator[Replacement]:
    yield Replacement(LOAD_CODE.path, loader(kind))
    for row in COMPILERS:
        yield Replacement(row.path, idle)
    yield Replacement(WAIT.path, _nothing)


def _gpu(device: DeviceTraits) -> Iterator[Replacement]:
    if device.kind == "cpu":
        return
    properties = _properties(device)
    for name, value in (
        ("get_device_properties", properties),
        ("current_device", 0),
        # By it Inductor knows which types of float8 its kernels may read and write.
        ("get_compute_capability", device.architecture or device.told[0] * 10 + device.told[1]),
        ("is_available", True),
        ("exchange_device", 0),
        ("maybe_exchange_device", 0),
        ("set_device", None),
        ("synchronize", None),
    ):
        yield Replacement(f"{CUDA_INTERFACE}.{name}", staticmethod(_answer(value)))
    yield Replacement(f"{CUDA_INTERFACE}.Worker.get_device_properties", staticmethod(_answer(properties)))
    yield Replacement(f"{CUDA_INTERFACE}.Worker.current_device", staticmethod(_answer(0)))
    yield Replacement("torch.cuda.get_device_properties", _answer(properties))
    yield Replacement(HAS_TRITON.path, _answer(True))
    # Where torch seems to have a GPU, a fake tensor on it makes a real one first.
    yield Replacement(INIT_GPU_CONTEXT.path, _nothing)
    yield from guardless()


def _properties(device: DeviceTraits) -> SimpleNamespace:
    """``torch.cuda.get_device_properties`` of the GPU, with all that Inductor asks it."""
    return SimpleNamespace(
        name="memplan fake GPU",
        major=device.told[0],
        minor=device.told[1],
        multi_processor_count=device.sm_count,
        max_threads_per_multi_processor=device.threads_per_sm,
        max_threads_per_block=1024,
        regs_per_multiprocessor=65_536,
        shared_memory_per_block=49_152,
        shared_memory_per_block_optin=49_152,
        shared_memory_per_multiprocessor=49_152,
        L2_cache_size=2**25,
        warp_size=64 if device.rocm else 32,
        total_memory=2**36,
        gcnArchName=device.architecture,
    )


def _answer(value: object) -> Callable[..., Any]:
    return lambda *_, **__: value


def _nothing(*_: object) -> None:
    return None
