"""A job's settings as DeepSpeed reads them: the contents of ``ds_config.json``."""

import importlib.util
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

from memplan.job.parallel import Parallel
from memplan.job.spec import JobSpec, Precision
from memplan.job.zero import Device, Zero
from memplan.tracing.turns import micro_batches_that_run

STAGES: Final = {"zero1": 1, "zero2": 2, "zero3": 3}
"""``Parallel.data`` → stage."""
HALF: Final[dict[Precision, str]] = {"bf16": "bf16", "bf16-mixed": "bf16", "fp16": "fp16", "fp16-mixed": "fp16"}
"""Precision → section that enables it. DeepSpeed's mixed precision holds half weights, and fp32 ones in the shards."""


def is_zero(parallel: Parallel) -> bool:
    """Is the job spread by DeepSpeed?"""
    return parallel.data in STAGES


def is_approximated(parallel: Parallel) -> bool:
    """Is the job ZeRO's, and no DeepSpeed there that could be traced?"""
    return is_zero(parallel) and importlib.util.find_spec("deepspeed") is None


def settings(spec: JobSpec, disk: Path) -> dict[str, Any]:
    """What ``deepspeed.initialize(config=…)`` takes.

    The job's ``parallel.data`` is one of ``STAGES``; in doubt its ``zero`` is DeepSpeed's defaults. The disk is a
    directory that stands for the NVMe drive.
    """
    zero = spec.zero or Zero()
    if spec.parallel.offload:
        zero = replace(zero, offload_optimizer=_away(zero.offload_optimizer), offload_param=_away(zero.offload_param))
    document: dict[str, Any] = {
        "train_micro_batch_size_per_gpu": spec.batch_size,
        "gradient_accumulation_steps": min(spec.grad_accum, sum(micro_batches_that_run(spec))),
        "gradient_clipping": spec.clip_grad_norm or 0.0,
        "zero_optimization": _sections(zero, STAGES[spec.parallel.data], disk),
        # Any optimizer that memplan knows may be sharded, and torch's own runs on the host where DeepSpeed would take
        # its CPUAdam: both keep the same states and update in place.
        "zero_allow_untested_optimizer": True,
        "zero_force_ds_cpu_optimizer": False,
    }
    half = HALF.get(spec.precision)
    if half is not None:
        document[half] = {"enabled": True}
    if zero.gradient_accumulation_dtype is not None:
        document["data_types"] = {"grad_accum_dtype": zero.gradient_accumulation_dtype}
    return document


def _away(device: Device) -> Device:
    return "cpu" if device == "none" else device


def _sections(zero: Zero, stage: int, disk: Path) -> dict[str, Any]:
    """``zero_optimization``."""
    section: dict[str, Any] = {
        "stage": stage,
        "contiguous_gradients": zero.contiguous_gradients,
        "reduce_scatter": zero.reduce_scatter,
        "round_robin_gradients": zero.round_robin_gradients,
        "reduce_bucket_size": zero.reduce_bucket_size,
        "allgather_bucket_size": zero.allgather_bucket_size,
        "sub_group_size": zero.sub_group_size,
        "zero_hpz_partition_size": zero.hpz_partition_size,
        "stage3_prefetch_bucket_size": zero.prefetch_bucket_size,
        "stage3_max_live_parameters": zero.max_live_parameters,
        "stage3_max_reuse_distance": zero.max_reuse_distance,
        "stage3_param_persistence_threshold": zero.param_persistence_threshold,
    }
    if zero.overlap_comm is not None:
        section["overlap_comm"] = zero.overlap_comm
    section |= _offload("offload_optimizer", zero.offload_optimizer, zero, disk)
    return section | (_offload("offload_param", zero.offload_param, zero, disk) if stage == STAGES["zero3"] else {})


def _offload(name: str, device: Device, zero: Zero, disk: Path) -> dict[str, Any]:
    if device == "none":
        return {}
    section: dict[str, Any] = {"device": device, "pin_memory": zero.pin_memory}
    if device == "nvme":
        section["nvme_path"] = str(disk)
    if name == "offload_param":
        section |= {
            "buffer_count": zero.param_buffer_count,
            "buffer_size": zero.param_buffer_size,
            "max_in_cpu": zero.param_max_in_cpu,
        }
    else:
        section["buffer_count"] = zero.optimizer_buffer_count
    return {name: section}
