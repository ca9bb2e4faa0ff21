"""What makes a CPU process look like one with a GPU, and torch's own code take CUDA's ways in it."""

from memplan.seam.patch import Patch, patch, patches
from memplan.seam.patches.world import FAKE_TENSOR

_ASKED_BY_TORCH = patches(
    "torch.cuda",
    "is_available",
    "device_count",
    "current_device",
    "get_device_capability",
    "get_device_properties",
    "is_bf16_supported",
    "is_current_stream_capturing",
    "device",
    why="torch's own code finds the GPU that is played",
    source="torch/cuda/__init__.py, torch/cuda/graphs.py",
)
_VERSIONS = patches(
    "torch.version",
    "cuda",
    "hip",
    why="libraries find the build of the GPU that is played",
    source="torch/version.py, made by tools/generate_torch_version.py",
)
_COMPILES = "Dynamo and Inductor run as on the GPU that is played"
_COMPILERS = "torch/_dynamo/utils.py preserve_rng_state, torch/_inductor/select_algorithm.py"
_RANDOM_STATE = patches("torch.cuda", "get_rng_state", why=_COMPILES, source=_COMPILERS)
_OF_PROGRAMS = "programs can ask for the state of the GPU that is played"
_MEMORY = "torch/cuda/__init__.py, torch/cuda/memory.py, torch/cuda/random.py"
_ASKED_BY_PROGRAMS = patches(
    "torch.cuda",
    "is_tf32_supported",
    "get_device_name",
    "mem_get_info",
    "memory_stats",
    "memory_summary",
    "get_rng_state_all",
    required=False,
    why=_OF_PROGRAMS,
    source=_MEMORY,
)
_GRAPHS = patches(
    "torch.cuda",
    "CUDAGraph",
    "graph",
    "graph_pool_handle",
    "make_graphed_callables",
    why="programs that capture CUDA graphs run",
    source="torch/cuda/graphs.py",
)
FIGURES = patches(
    "torch.cuda",
    "memory_allocated",
    "max_memory_allocated",
    "memory_reserved",
    "max_memory_reserved",
    "utilization",
    required=False,
    why=_OF_PROGRAMS,
    source=_MEMORY,
) + patches(
    "torch.accelerator",
    "memory_allocated",
    "max_memory_allocated",
    "memory_reserved",
    "max_memory_reserved",
    required=False,
    why=_OF_PROGRAMS,
    source="torch/accelerator/memory.py",
)
"""Functions that answer a number, which is 0 in a trace."""
ACTIONS = (
    *patches("torch.cuda", "synchronize", "set_rng_state", why=_COMPILES, source=_COMPILERS),
    *patches(
        "torch.cuda",
        "init",
        "empty_cache",
        "ipc_collect",
        "set_device",
        "set_rng_state_all",
        "set_per_process_memory_fraction",
        "manual_seed",
        "manual_seed_all",
        "reset_peak_memory_stats",
        "reset_max_memory_allocated",
        "reset_accumulated_memory_stats",
        required=False,
        why=_OF_PROGRAMS,
        source=_MEMORY,
    ),
    *patches(
        "torch.cuda.nvtx",
        "range_push",
        "range_pop",
        "mark",
        required=False,
        why="marks for profilers pass",
        source="torch/cuda/nvtx.py",
    ),
    *patches(
        "torch.cuda.memory",
        "_record_memory_history",
        "_dump_snapshot",
        required=False,
        why="programs that record memory run",
        source="torch/cuda/memory.py",
    ),
    *patches(
        "torch.accelerator",
        "synchronize",
        "set_device_index",
        "set_device_idx",
        "empty_cache",
        "empty_host_cache",
        "reset_peak_memory_stats",
        "reset_accumulated_memory_stats",
        required=False,
        why=_OF_PROGRAMS,
        source="torch/accelerator/__init__.py, torch/accelerator/memory.py",
    ),
)
"""Functions that do something and answer nothing."""
_STREAMS = patches(
    "torch.cuda",
    "Stream",
    "Event",
    "stream",
    "current_stream",
    "default_stream",
    "set_stream",
    why="every allocation is known by its stream",
    source="torch/cuda/streams.py, torch/cuda/__init__.py",
)
_ACCELERATOR = (
    *patches(
        "torch.accelerator",
        "is_available",
        "device_count",
        "current_accelerator",
        "current_stream",
        "set_stream",
        why="code for any accelerator finds the GPU that is played",
        source="torch/accelerator/__init__.py",
    ),
    *patches(
        "torch.accelerator",
        "current_device_index",
        "current_device_idx",
        "device_index",
        "get_device_capability",
        "get_memory_info",
        "memory_stats",
        required=False,
        why=_OF_PROGRAMS,
        source="torch/accelerator/__init__.py, torch/accelerator/memory.py",
    ),
)
LEGACY_TYPES = patches(
    "torch.cuda",
    "DoubleTensor",
    "FloatTensor",
    "HalfTensor",
    "BFloat16Tensor",
    "LongTensor",
    "IntTensor",
    "ShortTensor",
    "CharTensor",
    "ByteTensor",
    "BoolTensor",
    required=False,
    why="old constructors make tensors on the GPU that is played",
    source="torch/csrc/tensor/python_tensor.cpp",
)
"""Types of tensors that name a place as well."""
_RUNTIME = (
    *patches(
        "torch",
        "Generator",
        why="generators of the GPU that is played can be made",
        source="torch/csrc/Generator.cpp THPGenerator_pynew",
    ),
    *patches(
        "torch.nn.DataParallel",
        "forward",
        why="DataParallel runs as on one GPU",
        source="torch/nn/parallel/data_parallel.py DataParallel.forward",
    ),
    *patches(
        "torch.Tensor",
        "record_stream",
        why="uses on other streams pass",
        source="torch/csrc/autograd/python_variable_methods.cpp",
    ),
)
RUN_BACKWARD = patch(
    "torch.autograd._engine_run_backward",
    why="user code that autograd calls back finds the GPU that is played",
    source="torch/autograd/graph.py _engine_run_backward",
)
FAKE_DEVICE = patch(
    f"{FAKE_TENSOR}.device",
    why="fake tensors tell the device that they would lie on",
    source="torch/_subclasses/fake_tensor.py FakeTensor.device",
)
GROUP_BY_DEVICE = patch(
    "torch._C._group_tensors_by_device_and_dtype",
    why="groups of fake tensors tell the device that they would lie on",
    source="torch/utils/_foreach_utils.py _group_tensors_by_device_and_dtype",
)
NEW_NESTED = patch(
    "torch.nested._internal.nested_tensor.NestedTensor.__new__",
    required=False,
    why="nested tensors are made on the CPU of the trace",
    source="torch/nested/_internal/nested_tensor.py NestedTensor.__new__",
)
_PLACEMENT = (
    RUN_BACKWARD,
    FAKE_DEVICE,
    GROUP_BY_DEVICE,
    NEW_NESTED,
    *patches(
        "torch",
        "set_default_tensor_type",
        why="a default type of the GPU that is played says where tensors lie",
        source="torch/__init__.py set_default_tensor_type",
    ),
    *patches(
        "torch.autograd.graph.saved_tensors_hooks",
        "__init__",
        why="hooks on saved tensors find the GPU that is played",
        source="torch/autograd/graph.py saved_tensors_hooks",
    ),
)
_CLIPPING = "gradient clipping takes CUDA's ways"
_STEPPING = "optimizers take CUDA's ways"
_FOREACH = "torch/utils/_foreach_utils.py _has_foreach_support"
_DEFAULTS = "torch/optim/optimizer.py _default_to_fused_or_foreach, _get_capturable_supported_devices"
_DEVICES = ("_get_foreach_kernels_supported_devices", "_get_capturable_supported_devices")
DEVICE_LISTS = (
    *patches("torch.utils._foreach_utils", _DEVICES[0], why=_CLIPPING, source=_FOREACH),
    *patches("torch.optim.optimizer", *_DEVICES, why=_STEPPING, source=_DEFAULTS),
)
"""Functions that name the devices on which CUDA's optimizer paths run, where torch defines or first imports them."""
HELD_DEVICE_LISTS = patches("torch.optim.*", *_DEVICES, why=_STEPPING, source=_DEFAULTS)
"""The same as each optimizer's module holds them."""
TYPE_LISTS = (
    *patches("torch.utils._foreach_utils", "_foreach_supported_types", why=_CLIPPING, source=_FOREACH),
    *patches("torch.optim.optimizer", "_foreach_supported_types", why=_STEPPING, source=_DEFAULTS),
)
"""Lists of the exact types that may run there."""
_AUTOCAST = patches(
    "torch",
    "set_autocast_enabled",
    "set_autocast_cpu_enabled",
    "set_autocast_dtype",
    "set_autocast_gpu_dtype",
    "set_autocast_cpu_dtype",
    "clear_autocast_cache",
    why="autocast on fake tensors is CUDA's",
    source="torch/amp/autocast_mode.py autocast.__enter__, __exit__",
)
CALL_FLEX_ATTENTION = patch(
    "torch._higher_order_ops.flex_attention.FlexAttentionHOP.__call__",
    why="flex_attention takes the compiled kernel's memory",
    source="torch/_higher_order_ops/flex_attention.py",
)
_KERNELS = (
    CALL_FLEX_ATTENTION,
    *patches(
        "torch.nn.RNNBase",
        "flatten_parameters",
        why="recurrent layers do not ask cuDNN for a buffer",
        source="torch/nn/modules/rnn.py RNNBase.flatten_parameters",
    ),
)

PATCHES: tuple[Patch, ...] = (
    *_ASKED_BY_TORCH,
    *_VERSIONS,
    *_RANDOM_STATE,
    *_ASKED_BY_PROGRAMS,
    *_GRAPHS,
    *FIGURES,
    *ACTIONS,
    *_STREAMS,
    *_ACCELERATOR,
    *LEGACY_TYPES,
    *_RUNTIME,
    *_PLACEMENT,
    *DEVICE_LISTS,
    *HELD_DEVICE_LISTS,
    *TYPE_LISTS,
    *_AUTOCAST,
    *_KERNELS,
)
