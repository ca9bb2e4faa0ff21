"""Arguments for transformers' ``HfArgumentParser`` (transformers/training_args.py, 5.23).

The parser refuses keys that it does not know, so the head goes into the notes. ``gradient_checkpointing`` is the
deprecated name of ``activation_checkpointing``; with FSDP the latter stands in ``fsdp_config``, as the trainer asks.
Adapters and quantised weights are files of their own: peft's ``adapter_config.json`` and bitsandbytes' configuration.
"""

import json
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any

from memplan.emit import deepspeed_json, words
from memplan.emit.accelerate_yaml import MIXED, reshard_note
from memplan.emit.records import HEAD_ELSEWHERE
from memplan.job.adapters import Lora
from memplan.job.config_files.training_arguments import OPTIM
from memplan.job.setup_file import Setup
from memplan.job.spec import JobSpec

FILE = "training_args.json"
LORA_FILE = "adapter_config.json"
QUANTIZE_FILE = "quantization_config.json"
HEAD_FILE = HEAD_ELSEWHERE
"""What the parser leaves no room for."""
LIGER: Mapping[str, bool] = {
    "fused_linear_cross_entropy": True, "cross_entropy": False, "rope": False, "rms_norm": False, "layer_norm": False,
    "swiglu": False, "geglu": False,
}  # fmt: skip
"""Of Liger's kernels the loss alone (liger_kernel/transformers/monkey_patch.py, 0.8.5); models leave out what they have
no use for (``_apply_liger_kernel_to_instance``)."""
_OTHER_CODE: Mapping[str, str] = {
    "adafactor": "transformers' own Adafactor runs, not torch's",
    "lion": "bitsandbytes' Lion runs",
}
_QUANTIZE: Mapping[str, dict[str, Any]] = {
    "nf4": {"load_in_4bit": True, "bnb_4bit_quant_type": "nf4", "bnb_4bit_use_double_quant": False},
    "nf4-double": {"load_in_4bit": True, "bnb_4bit_quant_type": "nf4", "bnb_4bit_use_double_quant": True},
    "int8": {"load_in_8bit": True},
}
_COMPUTE = {"bf16": "bfloat16", "bf16-mixed": "bfloat16", "fp16": "float16", "fp16-mixed": "float16", "fp32": "float32"}


def render(setup: Setup, head: Sequence[str]) -> Mapping[str, str]:
    """Training arguments; DeepSpeed's file, peft's and bitsandbytes' beside them where the job needs them; the head."""
    job = setup.job
    files = {FILE: text(arguments(job))}
    if _uses_deepspeed(job):
        files[deepspeed_json.FILE] = text(deepspeed_content(job, head))
    if job.lora is not None:
        files[LORA_FILE] = text(_lora(job.lora))
    if job.quantize != "none":
        files[QUANTIZE_FILE] = text({"quant_method": "bitsandbytes", **quantization(job)})
    return files | {HEAD_FILE: words.commented(head)}


def deepspeed_content(job: JobSpec, head: Sequence[str]) -> dict[str, Any]:
    """DeepSpeed's configuration beside a trainer, which makes the optimizer and sets its learning rate."""
    content = deepspeed_json.config(job)
    content.pop("optimizer", None)
    content["zero_allow_untested_optimizer"] = True
    return {"_memplan": list(head), **content}


def compiling(job: JobSpec) -> dict[str, Any]:
    """Whether a trainer compiles, and with what, of which axolotl takes the same."""
    backend = {} if job.compile in {"eager", "inductor"} else {"torch_compile_backend": job.compile}
    return {"torch_compile": job.compile != "eager", **backend}


def arguments(job: JobSpec) -> dict[str, Any]:
    """Training arguments as plain data."""
    content: dict[str, Any] = {
        "per_device_train_batch_size": job.batch_size,
        "gradient_accumulation_steps": job.grad_accum,
        "max_grad_norm": job.clip_grad_norm or 0.0,
        "optim": optimizer_name(job),
        **compiling(job),
        **_precision(job),
    }
    if job.loss_chunks > 1:
        content |= {"use_liger_kernel": True, "liger_kernel_config": dict(LIGER)}
    if job.parallel.data.startswith("fsdp"):
        return content | {"fsdp": True, "fsdp_config": _fsdp(job)}
    content["activation_checkpointing"] = job.checkpoint == "full"
    return content | ({"deepspeed": deepspeed_json.FILE} if _uses_deepspeed(job) else {})


def optimizer_name(job: JobSpec) -> str:
    """What ``optim`` is; AdamW where the job's is none of it."""
    name = OPTIM.get(job.optimizer or "adamw", "adamw_torch")
    return "adamw_torch_fused" if name == "adamw_torch" and job.optimizer_impl == "fused" else name


def quantization(job: JobSpec) -> dict[str, Any]:
    """Arguments of ``BitsAndBytesConfig``."""
    content = dict(_QUANTIZE[job.quantize])
    if "load_in_4bit" in content:
        content["bnb_4bit_compute_dtype"] = _COMPUTE[job.precision]
    return content


def text(content: Mapping[str, Any]) -> str:
    """JSON as a file holds it."""
    return json.dumps(content, indent=2) + "\n"


def _uses_deepspeed(job: JobSpec) -> bool:
    return job.parallel.data.startswith("zero")


def _precision(job: JobSpec) -> dict[str, bool]:
    if _uses_deepspeed(job):
        # The trainer refuses to differ from DeepSpeed's file.
        half = deepspeed_json.HALF.get(job.precision)
        return {"bf16": half == "bf16", "fp16": half == "fp16"}
    return {"bf16": MIXED.get(job.precision) == "bf16", "fp16": MIXED.get(job.precision) == "fp16"}


def _fsdp(job: JobSpec) -> dict[str, Any]:
    parallel = job.parallel
    reshard: bool | str = bool(parallel.reshard)
    if parallel.data == "fsdp1":
        reshard = "full_shard" if reshard else "shard_grad_op"
    return {
        "version": 1 if parallel.data == "fsdp1" else 2,
        "reshard_after_forward": reshard,
        "cpu_offload": parallel.offload,
        "activation_checkpointing": job.checkpoint == "full",
    }


def _lora(lora: Lora) -> dict[str, Any]:
    if lora.config is not None:
        return dict(lora.config)
    return {
        "peft_type": "LORA",
        "r": lora.rank,
        "lora_alpha": lora.alpha,
        "lora_dropout": lora.dropout,
        "target_modules": "all-linear" if lora.targets == ("all-linear",) else list(lora.targets),
        "use_dora": lora.dora,
    }


def notes(job: JobSpec, lost: Collection[str]) -> Iterator[str]:
    """What the arguments leave to the program, and where they differ from the trainer's own."""
    ranks = f"start {job.parallel.ranks} processes, as torchrun --nproc-per-node does"
    todo = {
        "parallel": ranks,
        "precision": "load the model in this dtype",
        "optimizer": "adamw_torch is written",
        "loss_chunks": "Liger's fused linear cross entropy is written in its place (pip install liger-kernel), which "
        "makes parts of its own",
        "lora": f"get_peft_model(model, LoraConfig(...)) with what {LORA_FILE} says",
        "quantize": f"from_pretrained(…, quantization_config=BitsAndBytesConfig.from_dict({QUANTIZE_FILE}))",
    }
    yield from words.left_out(job, lost, todo)
    yield from ([words.CLIPPED_BY_DEFAULT] if job.clip_grad_norm is None else [])
    yield from optimizer_notes(job)
    if job.parallel.replicas > 1 and job.parallel.data.startswith("fsdp"):
        yield f"parallel {job.parallel}: pass ParallelismConfig(dp_replicate_size=…) or use accelerate's file"
    yield from reshard_note(job.parallel)
    yield from deepspeed_json.nvme_note(job)


def optimizer_notes(job: JobSpec) -> Iterator[str]:
    """What ``optim`` does not say of the optimizer."""
    if job.optimizer is None:
        yield f"optimizer: the setup names none, {optimizer_name(job)} is written"
    elif job.optimizer in _OTHER_CODE:
        yield f"optimizer {job.optimizer}: {_OTHER_CODE[job.optimizer]}"
