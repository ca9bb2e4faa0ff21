"""What ``torch.compile`` means in a trace, and Inductor without compilers and without a GPU."""

from memplan.seam.patch import Patch, patch, patches

CUDA_INTERFACE = "torch._dynamo.device_interface.CudaInterface"
"""What Inductor asks for a GPU."""
_ASYNC_COMPILE = "torch._inductor.async_compile.AsyncCompile"

NON_REENTRANT = (
    patch(
        "torch.utils.checkpoint._checkpoint_without_reentrant_generator",
        why="checkpointed blocks are marked in compiled regions",
        source="torch/utils/checkpoint.py checkpoint",
    ),
    # Its name in torch 2.15, where the other is still there for those who import it.
    patch(
        "torch.utils.checkpoint._checkpoint_without_reentrant_generator_impl",
        since="2.15",
        why="checkpointed blocks are marked in compiled regions",
        source="torch/utils/checkpoint.py checkpoint",
    ),
)
"""Generators that ``checkpoint`` runs its function between the steps of."""
LOAD_CODE = patch(
    "torch._inductor.codecache.PyCodeCache.load_by_key_path",
    why="what Inductor wrote is read and its buffers are taken",
    source="torch/_inductor/codecache.py PyCodeCache",
)
COMPILERS = (
    *patches(
        _ASYNC_COMPILE,
        "triton",
        "cpp",
        "cpp_pybinding",
        why="no compiler is needed",
        source="torch/_inductor/async_compile.py AsyncCompile",
    ),
    *patches(
        _ASYNC_COMPILE,
        "multi_kernel",
        "size_hint_multi_kernel",
        required=False,
        why="no compiler is needed",
        source="torch/_inductor/async_compile.py AsyncCompile",
    ),
)
"""Methods that compile a kernel."""
WAIT = patch(
    f"{_ASYNC_COMPILE}.wait", why="no compiler is needed", source="torch/_inductor/async_compile.py AsyncCompile"
)
HAS_TRITON = patch(
    "torch._inductor.scheduler.has_triton",
    why="Inductor writes code for the GPU that is played",
    source="torch/_inductor/scheduler.py",
)
INIT_GPU_CONTEXT = patch(
    "torch._subclasses.fake_tensor.init_gpu_context",
    why="fake tensors on a GPU make no real one there",
    source="torch/_subclasses/fake_tensor.py init_gpu_context",
)

PATCHES: tuple[Patch, ...] = (
    *patches("torch", "compile", why="compiling means what --compile says", source="torch/__init__.py compile"),
    *patches(
        "torch.nn.Module",
        "compile",
        why="compiling means what --compile says",
        source="torch/nn/modules/module.py Module.compile",
    ),
    *patches(
        "torch.compiler",
        "is_compiling",
        why="user code takes its compiled branches while it is captured",
        source="torch/compiler/__init__.py is_compiling",
    ),
    *NON_REENTRANT,
    LOAD_CODE,
    *COMPILERS,
    WAIT,
    HAS_TRITON,
    INIT_GPU_CONTEXT,
    *patches(
        "torch.utils.checkpoint.CheckpointFunction",
        "apply",
        why="checkpointed blocks are marked in compiled regions",
        source="torch/utils/checkpoint.py checkpoint",
    ),
    *patches(
        CUDA_INTERFACE,
        "get_device_properties",
        "current_device",
        "get_compute_capability",
        "is_available",
        "exchange_device",
        "maybe_exchange_device",
        "set_device",
        "synchronize",
        why="Inductor writes code for the GPU that is played",
        source="torch/_dynamo/device_interface.py CudaInterface",
    ),
    *patches(
        f"{CUDA_INTERFACE}.Worker",
        "get_device_properties",
        "current_device",
        why="Inductor writes code for the GPU that is played",
        source="torch/_dynamo/device_interface.py CudaInterface.Worker",
    ),
    *patches(
        "torch.Tensor",
        "__invert__",
        "__getitem__",
        "__setitem__",
        "contiguous",
        "copy_",
        why="methods of fake CUDA tensors do not ask for a device",
        source="torch/csrc/autograd/python_variable_indexing.cpp, python_variable_methods.cpp",
    ),
)
