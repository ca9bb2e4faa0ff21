"""DeepSpeed's ZeRO, in the words of ``ds_config.json``."""

from dataclasses import dataclass
from typing import Annotated, Final, Literal

from annotated_types import Ge

APPROXIMATE: Final = (
    "an approximation by ZeRO's partition rules: DeepSpeed, which is not installed, would be traced itself; "
    "the interval is widened by as much as such figures were off"
)
"""Said where DeepSpeed was not there to be traced."""
Device = Literal["none", "cpu", "nvme"]
Count = Annotated[int, Ge(0)]


@dataclass(frozen=True, slots=True, kw_only=True)
class Zero:
    """``zero_optimization`` and what else of the file decides about memory.

    Defaults are DeepSpeed's own (deepspeed/runtime/zero/config.py, 0.19.8). The number of ranks stands in ``Parallel``.
    """

    stage: Literal[0, 1, 2, 3] = 0
    """What is partitioned: nothing, optimizer states, gradients too, parameters too."""
    offload_optimizer: Device = "none"
    """Where master weights and optimizer states are kept."""
    offload_param: Device = "none"
    """Where partitioned parameters are kept (stage 3)."""
    overlap_comm: bool | None = None
    """Reduce while backward runs, with two buckets; None: as the stage has it."""
    contiguous_gradients: bool = True
    """Copy gradients into a bucket as they are made."""
    reduce_bucket_size: Count = 500_000_000
    """Elements."""
    allgather_bucket_size: Count = 500_000_000
    """Elements."""
    prefetch_bucket_size: Count = 50_000_000
    """``stage3_prefetch_bucket_size``, elements."""
    max_live_parameters: Count = 1_000_000_000
    """``stage3_max_live_parameters``, elements."""
    max_reuse_distance: Count = 1_000_000_000
    """``stage3_max_reuse_distance``, elements."""
    param_persistence_threshold: Count = 100_000
    """``stage3_param_persistence_threshold``, elements: smaller parameters are never partitioned."""
    reduce_scatter: bool = True
    """Reduce gradients to the ranks that own them, instead of to all."""
    round_robin_gradients: bool = False
    """Deal parameters out to the partitions in turns (stages 1 and 2)."""
    pin_memory: bool = True
    """Offload to page-locked memory (``pin_memory`` of both offload sections)."""
    param_buffer_count: Count = 5
    """``offload_param.buffer_count``: buffers for parameters on their way from and to NVMe."""
    param_buffer_size: Count = 100_000_000
    """``offload_param.buffer_size``, elements."""
    param_max_in_cpu: Count = 1_000_000_000
    """``offload_param.max_in_cpu``, elements: so much of the partition stays in host memory, NVMe or not."""
    optimizer_buffer_count: Count = 4
    """``offload_optimizer.buffer_count``: buffers for optimizer states on their way from and to NVMe."""
    sub_group_size: Count = 1_000_000_000
    """Elements that the optimizer steps at once (stage 3)."""
    hpz_partition_size: Count = 1
    """``zero_hpz_partition_size`` of ZeRO++: ranks of a node that keep a second copy of the parameters."""
    gradient_accumulation_dtype: Literal["fp32", "fp16", "bf16"] | None = None
    """``data_types.grad_accum_dtype``; None: the model's."""
