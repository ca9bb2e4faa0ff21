"""``axolotl.yml`` (axolotl/utils/schemas/config.py, 0.19)."""

from collections.abc import Mapping
from typing import Any

from memplan.job.adapters import Lora
from memplan.job.config_files import sharding
from memplan.job.config_files.deepspeed import include_deepspeed
from memplan.job.config_files.source import FileSource
from memplan.job.config_files.training_arguments import compiler, optimizer
from memplan.job.config_files.values import elements, norm, switch, whole, word, words
from memplan.job.parallel import Parallel

KEYS = frozenset({"base_model"})
"""What such a file has."""
_MESH: Mapping[str, str] = {
    "replicas": "dp_replicate_size",
    "shards": "dp_shard_size",
    "tensor": "tensor_parallel_size",
    "context": "context_parallel_size",
}
_LORA: Mapping[str, tuple[str, Any]] = {
    "rank": ("lora_r", whole),
    "alpha": ("lora_alpha", norm),
    "dropout": ("lora_dropout", norm),
    "dora": ("peft_use_dora", switch),
}
"""Field of ``Lora`` → key."""
_UNREAD = (
    "layer_offloading", "sample_packing", "lora_modules_to_save", "lora_mlp_kernel",
    "lora_qkv_kernel", "lora_o_kernel", "gptq", "fp8", "auto_resize_token_embeddings", "expert_parallel_size",
    "unfrozen_parameters", "relora", "use_liger_kernel", "liger_fused_linear_cross_entropy", "cut_cross_entropy",
    "chunked_cross_entropy",
)  # fmt: skip


def read(source: FileSource) -> None:
    """Take over what the file says, and axolotl's own defaults where memplan has others."""
    source.take("batch_size", "micro_batch_size", whole)
    source.take("grad_accum", "gradient_accumulation_steps", whole)
    source.take("seq_len", "sequence_len", whole, default=512)
    if source.take("clip_grad_norm", "max_grad_norm", norm, default=1.0) == 0:
        source.say("clip_grad_norm", None, "max_grad_norm")
    optimizer(source, "optimizer")
    if source.get("torch_compile") is True:
        compiler(source)
    _checkpointing(source)
    _adapter(source)
    _ranks(source)
    if "zero" not in source.values:
        _precision(source)
    source.note_unread(_UNREAD)


def _checkpointing(source: FileSource) -> None:
    found = source.get("gradient_checkpointing")
    if found in ("offload", "offload_disk"):
        source.note(f"gradient_checkpointing: {found} is read as true; nothing is offloaded")
        found = True
    if found is not None and switch(found):
        source.say("checkpoint", "full", "gradient_checkpointing")
    # Beside it alone; other words are other ways to do it.
    if source.get("activation_offloading") is True:
        source.say("offload_activations", True, "activation_offloading")
    else:
        source.note_unread(("activation_offloading",))


def _precision(source: FileSource) -> None:
    """``bf16`` is what the weights are loaded in; FSDP makes those that are trained fp32 again."""
    upcast = "-mixed" if str(source.values.get("parallel")).startswith(("fsdp", "hsdp")) else ""
    for key in ("bf16", "bfloat16", "fp16", "float16"):
        if source.get(key, switch):
            half = "bf16" if key.startswith("b") else "fp16"
            source.say("precision", f"{half}{upcast}", key)
            return
    if source.content.get("bf16", "auto") == "auto":
        source.say("precision", f"bf16{upcast}", "bf16(auto)")


def _adapter(source: FileSource) -> None:
    if source.get("load_in_8bit", switch):
        source.say("quantize", "int8", "load_in_8bit")
    if source.get("load_in_4bit", switch):
        single = source.get("bnb_config_kwargs.bnb_4bit_use_double_quant", switch) is False
        source.say("quantize", "nf4" if single else "nf4-double", "load_in_4bit")
    adapter = source.get("adapter", word)
    if adapter is None:
        return
    if adapter not in ("lora", "qlora"):
        source.note(f"adapter {adapter} is not read")
        return
    values = {name: source.get(key, read) for name, (key, read) in _LORA.items()}
    said: dict[str, Any] = {name: value for name, value in values.items() if value is not None}
    targets = source.get("lora_target_modules", words)
    if targets and not source.get("lora_target_linear", switch):
        said["targets"] = targets
    source.say("lora", Lora(**said), "adapter")


def _ranks(source: FileSource) -> None:
    if source.get("deepspeed") is not None:
        include_deepspeed(source, "deepspeed")
        return
    if source.get("fsdp") is not None:
        source.note("fsdp is deprecated, read as fsdp_config")
    if source.get("fsdp") is None and source.get("fsdp_config") is None:
        return
    version = source.get("fsdp_version", elements) or 1
    said = sharding.fsdp(source, "fsdp_config", version)
    sizes = {name: source.get(key, whole) for name, key in _MESH.items()}
    given = {name: size for name, size in sizes.items() if size is not None}
    source.say("parallel", Parallel(**said, **given), "dp_shard_size" if "shards" in given else "fsdp_config")
    if "shards" not in given:
        source.lack("parallel", "says FSDP, but not over how many ranks: give --parallel fsdp=N")
