"""torchtune's README: one GPU, compiled but for one row; and Llama 3.1 70B on eight.

Its configurations of those days, and the command that the README gives for the last row of its flags, say the rest:
chunked losses keep every part's logits (``CEWithChunkedOutputLoss``), LoRA and QLoRA offload activations, and QLoRA
keeps what is not quantised in bf16.
"""

from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any

from memplan.job.adapters import Lora
from memplan.job.parallel import Parallel
from memplan.job.source import ModelSource
from memplan.job.spec import JobSpec, PresetTarget
from published.speed.row import Row

if TYPE_CHECKING:
    import torch

FLAGS = "torchtune README, optimization flags, 2024-11 (Llama 3.2 3B, 2 x 4096, bf16, one A100, compiled)"
FLAGS_EAGER = "the same table: eager against compiled"
METHODS = "torchtune README @0031bfb0, 2024-09 (Llama 3.1 8B, 2 x 2048, bf16, compiled)"
METHODS_OTHERWISE = "the same table, if those of the A6000 did not checkpoint"
EIGHT = "the same table (Llama 3.1 70B, 2 x 2048, bf16, eight A100, compiled); its figures are of all eight"
CHUNKS = 8
"""``num_output_chunks``."""
_MLP = ("gate_proj", "up_proj", "down_proj")
_LORA = Lora(rank=8, alpha=16.0, targets=("q_proj", "v_proj"), prepare=False)
"""llama3_1/8B_lora_single_device @30b8519e8."""
_QLORA = replace(_LORA, targets=("q_proj", "k_proj", "v_proj", "o_proj", *_MLP))
"""llama3_1/8B_qlora_single_device @30b8519e8."""
_LORA_SEVENTY = Lora(rank=16, alpha=32.0, targets=("q_proj", "k_proj", "v_proj"), prepare=False)
"""llama3_1/70B_lora @30b8519e8."""
_LORA_THREE = Lora(rank=64, alpha=128.0, targets=("q_proj", "v_proj", "o_proj", *_MLP), prepare=False)
"""llama3_2/3B_lora_single_device and 3B_qlora_single_device @1814feb17."""

_THREE = JobSpec(target=PresetTarget(name="llama-3.2-3b"), batch_size=2, seq_len=4096, precision="bf16")
_SAVING = replace(_THREE, checkpoint="full")
_ADAPTED = replace(_SAVING, lora=_LORA_THREE, offload_activations=True)
_EIGHT = JobSpec(target=PresetTarget(name="llama-3.1-8b"), batch_size=2, seq_len=2048, precision="bf16")
_FULL = replace(_EIGHT, optimizer="paged-adamw-8bit", optimizer_in_backward=True)
_SEVENTY = JobSpec(
    target=PresetTarget(name="llama-3.1-70b"), batch_size=2, seq_len=2048, precision="bf16", checkpoint="full",
    parallel=Parallel(data="fsdp2", shards=8),
)  # fmt: skip


def chunked(source: ModelSource, _: JobSpec) -> ModelSource:
    """A source whose loss is made of one part of the tokens after another."""
    assert source.batch is not None  # Presets have one; this tells mypy.
    make = source.batch

    def batch(size: int, length: int | None) -> dict[str, Any]:
        return {name: value for name, value in make(size, length).items() if name != "labels"}

    return replace(source, batch=batch, loss=_chunked_loss)


def _chunked_loss(output: Any, batch: Any) -> "torch.Tensor":
    """torchtune/modules/loss/ce_chunked_output_loss.py: each part in fp32, the sum over the number of tokens."""
    from torch.nn.functional import cross_entropy

    labels = batch["input_ids"]
    parts = zip(output.logits.chunk(CHUNKS, dim=1), labels.chunk(CHUNKS, dim=1), strict=True)
    losses = [cross_entropy(part.flatten(0, 1).float(), own.flatten(), reduction="sum") for part, own in parts]
    total: torch.Tensor = sum(losses[1:], losses[0])
    return total / labels.numel()


def rows(*, compiled: bool) -> Iterator[Row]:
    """Those of one GPU.

    Args:
        compiled: With the pair of eager and compiled, which takes minutes.
    """
    plain = partial(Row, table=FLAGS, gpu="a100-80g")
    yield plain(name="compile", spec=_THREE, gib=51.0, tokens_per_second=8998)
    flags = partial(plain, change=chunked)
    yield flags(name="+ chunked cross-entropy", spec=_THREE, gib=42.9, tokens_per_second=9174)
    yield flags(name="+ activation checkpointing", spec=_SAVING, gib=24.9, tokens_per_second=7210)
    in_backward = replace(_SAVING, optimizer_in_backward=True)
    yield flags(name="+ optimizer in backward", spec=in_backward, gib=23.1, tokens_per_second=7309)
    offloaded = replace(in_backward, offload_activations=True)
    yield flags(name="+ activation offloading", spec=offloaded, gib=21.8, tokens_per_second=7301)
    yield flags(name="+ 8-bit AdamW", spec=replace(offloaded, optimizer="adamw-8bit"), gib=17.6, tokens_per_second=6960)
    yield flags(name="LoRA", spec=_ADAPTED, gib=8.5, tokens_per_second=8210)
    yield flags(name="QLoRA", spec=replace(_ADAPTED, quantize="nf4"), gib=4.6, tokens_per_second=8035)
    yield from _methods(METHODS, a6000="full")
    yield from _methods(METHODS_OTHERWISE, a6000="none")
    if compiled:
        eager = partial(Row, table=FLAGS_EAGER, gpu="a100-80g")
        yield eager(name="packed, eager", spec=_THREE, gib=60.0, tokens_per_second=7075)
        yield eager(name="compile", spec=replace(_THREE, compile="inductor"), gib=51.0, tokens_per_second=8998)


def _methods(table: str, *, a6000: str) -> Iterator[Row]:
    """Full fine-tuning and adapters on two cards.

    Args:
        table: Whose name they go by.
        a6000: ``checkpoint`` of that card's rows, which the README does not say.
    """
    adapted = replace(_EIGHT, lora=_LORA)
    small = partial(Row, table=table, gpu="rtx-4090", change=chunked)
    large = partial(Row, table=table, gpu="a6000", change=chunked)
    yield small(name="full, 4090", spec=replace(_FULL, checkpoint="full"), gib=18.9, tokens_per_second=1650)
    yield large(name="full, A6000", spec=replace(_FULL, checkpoint=a6000), gib=37.4, tokens_per_second=2579)
    yield small(name="LoRA, 4090", spec=replace(adapted, checkpoint="full"), gib=16.2, tokens_per_second=3083)
    yield large(name="LoRA, A6000", spec=replace(adapted, checkpoint=a6000), gib=30.3, tokens_per_second=4699)
    quantised = replace(_EIGHT, lora=_QLORA, checkpoint="full", quantize="nf4")
    yield small(name="QLoRA, 4090", spec=quantised, gib=7.4, tokens_per_second=2413)


def sharded_rows() -> Iterator[Row]:
    """Those of eight GPUs."""
    eight = partial(Row, table=EIGHT, gpu="a100-80g", change=chunked)
    offloaded = replace(_SEVENTY, parallel=replace(_SEVENTY.parallel, offload=True), optimizer_impl="fused")
    yield eight(name="full, states on the host", spec=offloaded, gib=13.9, tokens_per_second=1568 / 8)
    yield eight(name="LoRA", spec=replace(_SEVENTY, lora=_LORA_SEVENTY), gib=27.6, tokens_per_second=3497 / 8)
