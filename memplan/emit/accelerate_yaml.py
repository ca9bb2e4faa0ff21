"""``accelerate launch --config_file`` (accelerate/commands/config/config_args.py, 1.15: unknown keys are refused).

The plugin's own default is FSDP1, so the version is always written. With DeepSpeed the sizes stand in its own file,
which accelerate does not let this one repeat.
"""

from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any

import yaml

from memplan.emit import deepspeed_json, words
from memplan.job.parallel import Parallel
from memplan.job.setup_file import Setup
from memplan.job.spec import JobSpec

FILE = "accelerate.yaml"
MIXED = {"bf16-mixed": "bf16", "fp16-mixed": "fp16"}
"""Precision → ``mixed_precision``; a cast of the whole model is none."""
_HINTS = {
    "precision": "load the model in this dtype",
    "grad_accum": "pass gradient_accumulation_steps to Accelerator()",
    "clip_grad_norm": "call accelerator.clip_grad_norm_ before the optimizer steps",
}


def render(setup: Setup, head: Sequence[str]) -> Mapping[str, str]:
    """The launcher's file; with ZeRO, DeepSpeed's beside it."""
    job = setup.job
    content = words.commented(head) + yaml.safe_dump(_config(job), sort_keys=False)
    return {FILE: content, **(deepspeed_json.render(setup, head) if _uses_deepspeed(job) else {})}


def _uses_deepspeed(job: JobSpec) -> bool:
    return job.parallel.data.startswith("zero")


def _config(job: JobSpec) -> dict[str, Any]:
    content: dict[str, Any] = {
        "compute_environment": "LOCAL_MACHINE",
        "distributed_type": _kind(job),
        "num_machines": 1,
        "machine_rank": 0,
        "num_processes": job.parallel.ranks,
        "main_training_function": "main",
        "use_cpu": False,
    }
    if job.compile != "eager":
        content["dynamo_config"] = {"dynamo_backend": job.compile.upper()}
    if _uses_deepspeed(job):
        section = {"deepspeed_config_file": deepspeed_json.FILE, "zero3_init_flag": job.parallel.data == "zero3"}
        return content | {"deepspeed_config": section}
    content["mixed_precision"] = MIXED.get(job.precision, "no")
    if job.parallel.data.startswith("fsdp"):
        content["fsdp_config"] = _fsdp(job)
    if job.parallel.data == "fsdp2" and _is_several(job.parallel):
        content["parallelism_config"] = _mesh(job.parallel)
    return content


def _kind(job: JobSpec) -> str:
    return {"none": "NO", "ddp": "MULTI_GPU", "fsdp1": "FSDP", "fsdp2": "FSDP"}.get(job.parallel.data, "DEEPSPEED")


def _fsdp(job: JobSpec) -> dict[str, Any]:
    parallel = job.parallel
    section: dict[str, Any] = {
        "fsdp_version": 2,
        "fsdp_reshard_after_forward": bool(parallel.reshard),
        "fsdp_state_dict_type": "SHARDED_STATE_DICT",
    }
    if parallel.data == "fsdp1":
        section = {
            "fsdp_version": 1,
            "fsdp_sharding_strategy": "FULL_SHARD" if parallel.reshard else "SHARD_GRAD_OP",
            "fsdp_use_orig_params": True,
            "fsdp_backward_prefetch": "BACKWARD_PRE",
        }
    return section | {
        "fsdp_auto_wrap_policy": "TRANSFORMER_BASED_WRAP",
        "fsdp_offload_params": parallel.offload,
        "fsdp_activation_checkpointing": job.checkpoint == "full",
    }


def _is_several(parallel: Parallel) -> bool:
    return max(parallel.replicas, parallel.tensor, parallel.context) > 1


def _mesh(parallel: Parallel) -> dict[str, Any]:
    return {
        "parallelism_config_dp_replicate_size": parallel.replicas,
        "parallelism_config_dp_shard_size": parallel.shards,
        "parallelism_config_tp_size": parallel.tensor,
        "parallelism_config_cp_size": parallel.context,
    }


def notes(job: JobSpec, lost: Collection[str]) -> Iterator[str]:
    """What the launcher's file leaves to the program."""
    if _uses_deepspeed(job):
        yield from deepspeed_json.notes(job, lost)
        return
    yield from words.left_out(job, lost, _HINTS)
    yield from reshard_note(job.parallel)


def reshard_note(parallel: Parallel) -> Iterator[str]:
    """A sentence where parameters are resharded over fewer ranks, for formats that only say whether they are."""
    if parallel.reshard is not True and parallel.reshard is not False:
        yield f"parallel {parallel}: reshard={parallel.reshard} cannot be said, yes is written"
