"""What makes a CPU process look like one with a GPU, and torch's own code take CUDA's ways in it."""

from memplan.seam.patch import Patch, patches

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
_ASKED_BY_PROGRAMS = patches(
    "torch.cuda",
    "is_tf32_supported",
    "get_device_name",
    "mem_get_info",
    "memory_stats",
    "memory_summary",
    "memory_allocated",
    "max_memory_allocated",
    "memory_reserved",
    "max_memory_reserved",
    "utilization",
    "get_rng_state",
    "get_rng_state_all",
    "init",
    "synchronize",
    "empty_cache",
    "ipc_collect",
    "set_device",
    "set_rng_state",
    "set_rng_state_all",
    "set_per_process_memory_fraction",
    "manual_seed",
    "manual_seed_all",
    "reset_peak_memory_stats",
    "reset_max_memory_allocated",
    "reset_accumulated_memory_stats",
    required=False,
    why="programs can ask for the state of the GPU that is played",
    source="torch/cuda/__init__.py, torch/cuda/memory.py, torch/cuda/random.py",
)
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
_DIAGNOSTICS = (
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
        "synchronize",
        "set_device_index",
        "empty_cache",
        required=False,
        why="programs can ask for the state of the GPU that is played",
        source="torch/accelerator/__init__.py, torch/accelerator/memory.py",
    ),
)
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
_PLACEMENT = (
    *patches(
        "torch.autograd",
        "_engine_run_backward",
        why="user code that autograd calls back finds the GPU that is played",
        source="torch/autograd/graph.py _engine_run_backward",
    ),
    *patches(
        "torch.autograd.graph.saved_tensors_hooks",
        "__init__",
        why="hooks on saved tensors find the GPU that is played",
        source="torch/autograd/graph.py saved_tensors_hooks",
    ),
    *patches(
        "torch._subclasses.fake_tensor.FakeTensor",
        "device",
        why="fake tensors tell the device that they would lie on",
        source="torch/_subclasses/fake_tensor.py FakeTensor.device",
    ),
    *patches(
        "torch._C",
        "_group_tensors_by_device_and_dtype",
        why="groups of fake tensors tell the device that they would lie on",
        source="torch/utils/_foreach_utils.py _group_tensors_by_device_and_dtype",
    ),
    *patches(
        "torch.nested._internal.nested_tensor.NestedTensor",
        "__new__",
        required=False,
        why="nested tensors are made on the CPU of the trace",
        source="torch/nested/_internal/nested_tensor.py NestedTensor.__new__",
    ),
)
_OPTIMIZERS = (
    *patches(
        "torch.utils._foreach_utils",
        "_get_foreach_kernels_supported_devices",
        "_foreach_supported_types",
        why="gradient clipping takes CUDA's ways",
        source="torch/utils/_foreach_utils.py _has_foreach_support",
    ),
    *patches(
        "torch.optim.optimizer",
        "_get_foreach_kernels_supported_devices",
        "_get_capturable_supported_devices",
        "_foreach_supported_types",
        why="optimizers take CUDA's ways",
        source="torch/optim/optimizer.py _default_to_fused_or_foreach, _get_capturable_supported_devices",
    ),
)
_OPTIMIZER_MODULES = patches(
    "torch.optim.*",
    "_get_foreach_kernels_supported_devices",
    "_get_capturable_supported_devices",
    why="optimizers take CUDA's ways",
    source="torch/optim/optimizer.py _default_to_fused_or_foreach, _get_capturable_supported_devices",
)
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
_KERNELS = (
    *patches(
        "torch._higher_order_ops.flex_attention.FlexAttentionHOP",
        "__call__",
        why="flex_attention takes the compiled kernel's memory",
        source="torch/_higher_order_ops/flex_attention.py",
    ),
    *patches(
        "torch.nn.RNNBase",
        "flatten_parameters",
        why="recurrent layers do not ask cuDNN for a buffer",
        source="torch/nn/modules/rnn.py RNNBase.flatten_parameters",
    ),
)

PATCHES: tuple[Patch, ...] = (
    *_ASKED_BY_TORCH,
    *_ASKED_BY_PROGRAMS,
    *_STREAMS,
    *_DIAGNOSTICS,
    *_ACCELERATOR,
    *_RUNTIME,
    *_PLACEMENT,
    *_OPTIMIZERS,
    *_OPTIMIZER_MODULES,
    *_AUTOCAST,
    *_KERNELS,
)
