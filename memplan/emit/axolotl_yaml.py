"""``axolotl.yml`` (axolotl/utils/schemas/config.py, 0.19).

axolotl loads the weights themselves in the dtype that ``bf16`` or ``fp16`` names (utils/config/__init__.py,
``cfg.torch_dtype``); under FSDP accelerate makes those that are trained fp32 again.
"""

from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any

import yaml

from memplan.emit import deepspeed_json, training_arguments, words
from memplan.emit.accelerate_yaml import reshard_note
from memplan.job.adapters import Lora
from memplan.job.setup_file import Setup
from memplan.job.spec import HubTarget, JobSpec

FILE = "axolotl.yml"
UNKNOWN_MODEL = "CHANGE_ME"
HALF: Mapping[str, str] = {"bf16": "bf16", "bf16-mixed": "bf16", "fp16": "fp16", "fp16-mixed": "fp16"}


def render(setup: Setup, head: Sequence[str]) -> Mapping[str, str]:
    """Axolotl's file; with ZeRO, DeepSpeed's beside it."""
    job = setup.job
    files = {FILE: words.commented(head) + yaml.safe_dump(_config(job), sort_keys=False)}
    if job.parallel.data.startswith("zero"):
        files[deepspeed_json.FILE] = training_arguments.text(training_arguments.deepspeed_content(job, head))
    return files


def _config(job: JobSpec) -> dict[str, Any]:
    content: dict[str, Any] = {
        "base_model": job.target.location if isinstance(job.target, HubTarget) else UNKNOWN_MODEL,
        "micro_batch_size": job.batch_size,
        "gradient_accumulation_steps": job.grad_accum,
        "max_grad_norm": job.clip_grad_norm or 0.0,
        "optimizer": training_arguments.optimizer_name(job),
        "bf16": HALF.get(job.precision) == "bf16",
        "fp16": HALF.get(job.precision) == "fp16",
        "tf32": False,
        **training_arguments.compiling(job),
    }
    content |= {"sequence_len": job.seq_len} if job.seq_len is not None else {}
    if job.loss_chunks > 1:
        content |= {"chunked_cross_entropy": True, "chunked_cross_entropy_num_chunks": job.loss_chunks}
    if job.offload_activations and _takes_switch(job):
        content["activation_offloading"] = True
    return content | _adapter(job) | _parallel(job)


def _takes_switch(job: JobSpec) -> bool:
    """Is ``gradient_checkpointing`` on? Without it axolotl refuses to offload (utils/schemas/validation.py)."""
    return job.checkpoint == "full" and not job.parallel.data.startswith("fsdp")


def _adapter(job: JobSpec) -> dict[str, Any]:
    if job.lora is None:
        # It refuses quantised weights without them (utils/schemas/validation.py).
        return {}
    loads: dict[str, Any] = {}
    if job.quantize != "none":
        loads["load_in_8bit" if job.quantize == "int8" else "load_in_4bit"] = True
    if job.quantize == "nf4":
        loads["bnb_config_kwargs"] = {"bnb_4bit_use_double_quant": False}
    return {"adapter": "qlora" if job.quantize.startswith("nf4") else "lora", **loads, **_lora(job.lora)}


def _lora(lora: Lora) -> dict[str, Any]:
    is_all = lora.targets == ("all-linear",)
    return {
        "lora_r": lora.rank,
        "lora_alpha": round(lora.alpha),
        "lora_dropout": lora.dropout,
        **({"lora_target_linear": True} if is_all else {"lora_target_modules": list(lora.targets)}),
        "peft_use_dora": lora.dora,
    }


def _parallel(job: JobSpec) -> dict[str, Any]:
    parallel, is_checkpointed = job.parallel, job.checkpoint == "full"
    if parallel.data.startswith("zero"):
        return {"gradient_checkpointing": is_checkpointed, "deepspeed": deepspeed_json.FILE}
    if not parallel.data.startswith("fsdp"):
        return {"gradient_checkpointing": is_checkpointed}
    section = {
        "auto_wrap_policy": "TRANSFORMER_BASED_WRAP",
        "state_dict_type": "SHARDED_STATE_DICT",
        "offload_params": parallel.offload,
        "reshard_after_forward": bool(parallel.reshard),
        "activation_checkpointing": is_checkpointed,
    }
    if parallel.data == "fsdp1":
        return {"fsdp_version": 1, "fsdp_config": section}
    sizes = {
        "dp_replicate_size": parallel.replicas,
        "dp_shard_size": parallel.shards,
        "tensor_parallel_size": parallel.tensor,
        "context_parallel_size": parallel.context,
    }
    ring = {"attn_implementation": "flash_attention_2"} if parallel.context > 1 else {}
    return {"fsdp_version": 2, **sizes, **ring, "fsdp_config": section}


def notes(job: JobSpec, lost: Collection[str]) -> Iterator[str]:
    """What axolotl has no word for, does otherwise, or has another default of."""
    todo = {
        "precision": f"axolotl holds the weights as {held_in(job)} does",
        "optimizer": "adamw_torch is written",
        "quantize": "axolotl quantises only beside adapters",
        "parallel": f"start {job.parallel.ranks} processes",
        "attention": "say it with attn_implementation",
        "loss_chunks": "chunked_cross_entropy is written, which makes all logits at once and only their fp32 copies in "
        "parts; axolotl.integrations.liger.LigerPlugin with liger_fused_linear_cross_entropy never makes them all",
        "offload_activations": "axolotl has activation_offloading beside gradient_checkpointing alone",
        "lora": "axolotl takes a whole lora_alpha, and only rank, dropout, targets and DoRA beside it",
    }
    yield from words.left_out(job, lost, todo)
    yield from ([words.CLIPPED_BY_DEFAULT] if job.clip_grad_norm is None else [])
    yield from training_arguments.optimizer_notes(job)
    yield from reshard_note(job.parallel)
    yield from deepspeed_json.nvme_note(job)
    yield "datasets are missing: add yours"
    if not isinstance(job.target, HubTarget):
        yield f"base_model is {UNKNOWN_MODEL}: say which model on the hub or on disk it is"
    if job.parallel.context > 1:
        yield f"parallel {job.parallel}: axolotl's rings need the package flash-attn, its kernel is not SDPA's"
    if job.seq_len is None:
        yield "seq_len: the setup says none, axolotl cuts samples to 512"


def held_in(job: JobSpec) -> str:
    """The precision that axolotl's file stands for; DeepSpeed has one mixed precision for both names."""
    half = HALF.get(job.precision)
    if half is None or job.parallel.data.startswith("zero"):
        return job.precision
    return f"{half}-mixed" if job.parallel.data.startswith("fsdp") else half
