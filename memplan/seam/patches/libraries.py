"""What is replaced in libraries beside torch, where a job uses them."""

from memplan.seam.patch import Patch, patch, patches

_ZERO = "deepspeed.runtime.zero"

MAKE_SUBCLASS = patch(
    "torch.Tensor._make_subclass",
    why="quantised parameters can be fake",
    source="torch/csrc/autograd/python_variable.cpp THPVariable_make_subclass",
)
RAW_STREAM = patch(
    "torch._C._cuda_getCurrentRawStream",
    # A CPU build has none.
    added=True,
    why="wrappers of kernels find a stream",
    source="torch/csrc/cuda/Module.cpp",
)

PATCHES: tuple[Patch, ...] = (
    *patches(
        "transformers.utils.import_utils",
        "is_fake_tensor",
        since="5.23",
        why="fake tensors do not take the branches of an export",
        source="transformers/utils/import_utils.py is_tracing",
    ),
    *patches(
        "triton.runtime.JITFunction",
        "run",
        why="kernels are not compiled",
        since="3.0",
        source="triton/runtime/jit.py JITFunction.run",
    ),
    *patches(
        "triton.runtime.Autotuner",
        "run",
        why="kernels are not tuned",
        since="3.0",
        source="triton/runtime/autotuner.py Autotuner.run",
    ),
    *patches(
        "bitsandbytes.*", "lib", why="its C library is not called", since="0.43", source="bitsandbytes/cextension.py"
    ),
    *patches(
        "torch.ops.bitsandbytes",
        "*",
        why="its operators run the Python part of their CUDA kernels",
        source="bitsandbytes/backends/cuda/ops.py",
    ),
    *patches(
        "bitsandbytes.functional",
        "*",
        why="its tables of update kernels are those of a CUDA machine",
        since="0.43",
        until="0.46",
        source="bitsandbytes/functional.py",
    ),
    *patches(
        "bitsandbytes.functional",
        "get_paged",
        "name2qmap",
        why="its buffers are fake and nothing of them outlives the trace",
        since="0.43",
        source="bitsandbytes/functional.py",
    ),
    *patches(
        "bitsandbytes.functional.GlobalPageManager",
        "_instance",
        why="its buffers are fake and nothing of them outlives the trace",
        since="0.43",
        source="bitsandbytes/functional.py GlobalPageManager",
    ),
    MAKE_SUBCLASS,
    RAW_STREAM,
    *patches(
        f"{_ZERO}.partition_parameters.AllGatherCoalescedHandle",
        "wait",
        since="0.18",
        why="a view is not made for each of many ranks",
        source="deepspeed/runtime/zero/partition_parameters.py",
    ),
    *patches(
        f"{_ZERO}.stage3",
        "reduce_scatter_coalesced",
        since="0.18",
        why="a view is not made for each of many ranks",
        source="deepspeed/runtime/comm/coalesced_collectives.py",
    ),
    *patches(
        "deepspeed.accelerator.real_accelerator",
        "ds_accelerator",
        since="0.18",
        why="DeepSpeed finds the GPU that is played",
        source="deepspeed/accelerator/real_accelerator.py get_accelerator",
    ),
    *patches(
        "deepspeed.ops.op_builder.AsyncIOBuilder",
        "load",
        since="0.18",
        why="writes to NVMe are counted and not done",
        source="deepspeed/ops/op_builder/async_io.py",
    ),
    *patches(
        f"{_ZERO}.stage_1_and_2.DeepSpeedZeroOptimizer",
        "has_overflow",
        since="0.18",
        why="no step is skipped for gradients without numbers",
        source="deepspeed/runtime/zero/stage_1_and_2.py",
    ),
    *patches(
        f"{_ZERO}.stage3.DeepSpeedZeroOptimizer_Stage3",
        "has_overflow",
        since="0.18",
        why="no step is skipped for gradients without numbers",
        source="deepspeed/runtime/zero/stage3.py",
    ),
    *patches(
        "deepspeed.runtime.utils.CheckOverflow",
        "has_overflow",
        "check_using_norm",
        since="0.18",
        why="no step is skipped for gradients without numbers",
        source="deepspeed/runtime/utils.py CheckOverflow",
    ),
    *patches(
        "deepspeed.ops.op_builder.builder.OpBuilder",
        "load",
        since="0.18",
        why="kernels are not compiled",
        source="deepspeed/ops/op_builder/builder.py OpBuilder.load",
    ),
    *patches(
        "deepspeed.runtime.engine.DeepSpeedEngine",
        "_take_model_step",
        since="0.18",
        why="steps of a program's engine are seen",
        source="deepspeed/runtime/engine.py DeepSpeedEngine.step",
    ),
    *patches(
        "deepspeed",
        "initialize",
        since="0.18",
        why="what an engine of a program holds has names",
        source="deepspeed/__init__.py initialize",
    ),
    *patches(
        "deepspeed.*",
        "assert_ints_same_as_other_ranks",
        since="0.18",
        why="ranks that are not there do not disagree",
        source="deepspeed/runtime/zero/utils.py",
    ),
    *patches(
        "torch.nn.functional",
        "linear",
        why="what DeepSpeed puts there is taken away again",
        source="deepspeed/runtime/zero/partition_parameters.py Init",
    ),
)
