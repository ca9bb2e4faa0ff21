"""scripts/measure.py of fitcheck: a 4-bit model with LoRA, one batch, the same step again and again."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import bitsandbytes
import peft
import torch
import transformers
from torch.nn import functional
from torch.nn.attention import SDPBackend, sdpa_kernel

from memplan.hardware.catalog import load_profile
from memplan.job.source import ModelSource
from memplan.job.spec import FileTarget, JobSpec
from memplan.lifetime.build import build_lifetimes
from memplan.measure.played import play_on_device
from memplan.tracing.records import DeviceTraits
from memplan.tracing.run import trace_job
from published.case import Prediction
from published.fitcheck.runs import Run

RANK = 32
TARGETS = ["q_proj", "k_proj", "v_proj", "o_proj"]
CONFIGURATIONS: dict[str, tuple[str, dict[str, Any]]] = {
    "TinyLlama-1.1B": (
        "Llama",
        {"hidden_size": 2048, "intermediate_size": 5632, "num_hidden_layers": 22, "num_attention_heads": 32}
        | {"num_key_value_heads": 4, "vocab_size": 32_000, "tie_word_embeddings": False},
    ),
    "SmolLM2-1.7B": (
        "Llama",
        {"hidden_size": 2048, "intermediate_size": 8192, "num_hidden_layers": 24, "num_attention_heads": 32}
        | {"num_key_value_heads": 32, "vocab_size": 49_152, "tie_word_embeddings": True},
    ),
    "Qwen2.5-1.5B": (
        "Qwen2",
        {"hidden_size": 1536, "intermediate_size": 8960, "num_hidden_layers": 28, "num_attention_heads": 12}
        | {"num_key_value_heads": 2, "vocab_size": 151_936, "tie_word_embeddings": True},
    ),
}
"""Name → family and the ``config.json`` of TinyLlama/TinyLlama-1.1B-Chat-v1.0, HuggingFaceTB/SmolLM2-1.7B and
Qwen/Qwen2.5-1.5B-Instruct, as far as it decides sizes."""


def predict_here(run: Run) -> Prediction:
    """Trace a run on a T4 and replay its allocations."""
    profile = load_profile("t4")
    spec = JobSpec(target=FileTarget(path=Path(__file__)), batch_size=run.batch, seq_len=run.length)
    trace = trace_job(lambda: source(run), spec, DeviceTraits.of(profile))
    memory = play_on_device(build_lifetimes(trace), profile).memory
    return Prediction(requested=memory.peak_requested, allocated=memory.peak_allocated, reserved=memory.peak_reserved)


def source(run: Run) -> ModelSource:
    """A run as memplan takes it."""

    def batch(batch_size: int, length: int | None) -> torch.Tensor:
        return torch.zeros(batch_size, length or 0, dtype=torch.long)

    def step(model: Any, optimizer: torch.optim.Optimizer, tokens: torch.Tensor) -> None:
        """``one_step``."""
        with _attention(run):
            optimizer.zero_grad(set_to_none=True)
            out = model(input_ids=tokens, labels=tokens)
            out.loss.backward()
            optimizer.step()

    return ModelSource(
        model=lambda: build(run),
        batch=batch,
        optimizer=lambda parameters: torch.optim.AdamW([each for each in parameters if each.requires_grad], lr=1e-4),
        train_step=step,
    )


def build(run: Run) -> Any:
    """``build_model``, with a checkpoint's place taken by fresh weights."""
    family, settings = CONFIGURATIONS[run.model]
    config = getattr(transformers, f"{family}Config")(**settings, use_cache=False)
    config._attn_implementation = run.attention  # noqa: SLF001 - what from_pretrained's attn_implementation sets
    model: Any = getattr(transformers, f"{family}ForCausalLM")(config).to(torch.float16)
    _quantise(model)
    model.cuda()
    model.is_loaded_in_4bit = True
    model = peft.prepare_model_for_kbit_training(model, use_gradient_checkpointing=True)
    adapters = peft.LoraConfig(
        r=RANK, lora_alpha=2 * RANK, lora_dropout=0.0, bias="none", task_type="CAUSAL_LM", target_modules=TARGETS
    )
    model = peft.get_peft_model(model, adapters)
    model.gradient_checkpointing_enable(gradient_checkpointing_kwargs={"use_reentrant": False})
    model.enable_input_require_grads()
    model.train()
    return model


def _quantise(model: torch.nn.Module) -> None:
    """What transformers' ``BitsAndBytesConfig`` does on loading: 4-bit layers for all linear ones but the head."""
    for name, layer in list(model.named_modules()):
        if not isinstance(layer, torch.nn.Linear) or name == "lm_head":
            continue
        packed = bitsandbytes.nn.Linear4bit(
            layer.in_features,
            layer.out_features,
            layer.bias is not None,
            compute_dtype=torch.float16,
            compress_statistics=False,
            quant_type="nf4",
        ).to(torch.float16)
        packed.requires_grad_(requires_grad=False)
        model.set_submodule(name, packed)


@contextmanager
def _attention(run: Run) -> Iterator[None]:
    """``_sdpa_backend``: pinned to one kernel, keys and values repeated by hand for it."""
    if run.attention == "eager":
        yield
        return
    original = functional.scaled_dot_product_attention

    def repeated(query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, *args: Any, **keywords: Any) -> Any:
        if key.size(-3) != query.size(-3):
            groups = query.size(-3) // key.size(-3)
            key = key.repeat_interleave(groups, dim=-3)
            value = value.repeat_interleave(groups, dim=-3)
            keywords.pop("enable_gqa", None)
        return original(query, key, value, *args, **keywords)

    functional.scaled_dot_product_attention = repeated
    try:
        with sdpa_kernel(SDPBackend.EFFICIENT_ATTENTION):
            yield
    finally:
        functional.scaled_dot_product_attention = original
