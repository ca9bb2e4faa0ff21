"""Which of PyTorch's memory tools a file speaks of: a census, not praise."""

import re
from collections.abc import Mapping

TOOLS: Mapping[str, frozenset[str]] = {
    name: frozenset(words.split())
    for name, words in {
        "mixed precision": "autocast GradScaler mixed_precision MixedPrecision amp bf16",
        "no_grad / inference_mode": "no_grad inference_mode",
        "checkpointing": "checkpoint_sequential gradient_checkpointing gradient_checkpointing_enable "
        "checkpoint_wrapper activation_checkpointing apply_activation_checkpointing use_reentrant",
        "fused attention": "scaled_dot_product_attention flash_attn flash_attn_func flex_attention xformers sdpa "
        "flash_attention_2",
        "sharding (FSDP, ZeRO)": "FSDP FullyShardedDataParallel fully_shard ZeroRedundancyOptimizer deepspeed",
        "pinned memory": "pin_memory non_blocking",
        "gradients set to None": "set_to_none",
        "gradient accumulation": "gradient_accumulation gradient_accumulation_steps accumulate_grad_batches grad_accum",
        "8-bit optimizers, quantised weights": "bitsandbytes bnb torchao load_in_8bit load_in_4bit AdamW8bit",
        "low-rank adapters": "LoraConfig get_peft_model",
        "CPU offload": "CPUOffload CPUOffloadPolicy cpu_offload offload_to_cpu save_on_cpu enable_model_cpu_offload",
        "memory-mapped loading": "mmap low_cpu_mem_usage safe_open init_empty_weights",
        "memory readings": "max_memory_allocated memory_reserved memory_allocated memory_summary mem_get_info "
        "_record_memory_history",
        "memplan": "memplan",
    }.items()
}
"""Tool → identifiers by which its use is known."""
_WORD = re.compile(r"\w+")


def tools_in(text: str) -> frozenset[str]:
    """Tools that a text speaks of."""
    words = set(_WORD.findall(text))
    return frozenset(name for name, known in TOOLS.items() if known & words)
