"""What each row ran: the program's options, by the row's id."""

from dataclasses import asdict, dataclass
from typing import Literal

EARLY = "0.2.0"
"""March 2024. Stands for 6178c7cc to 0cc02afa (October 2023, LoRA and generation): the same LoRA layers, whose zero
padding copies, and RMSNorm in fp32, of which frozen weights keep nothing but the input either way."""
LATE = "0.4.12"
"""September 2024, when the configuration hub's table was made. Stands for 0f021f3a (January 2024, adapters) too: there
the norms are trained, and RMSNorm keeps its normalised input in fp32, which 0.2.0 does not."""

Method = Literal["lora", "adapter", "adapter_v2", "full", "generate"]

ALPACA = 128
"""Tokens of a batch of Alpaca that is not the longest: few enough to leave no trace in a peak."""
HUB_LENGTH = 512
"""``max_seq_length`` of every configuration of the hub: long samples are cut there."""
PROMPT = 6
"""Tokens of generate/base.py's default prompt, "What food do llamas eat?"; some tokenizers make a few more of it."""
NEW_TOKENS = 50
"""generate/base.py, ``max_new_tokens``: the key-value cache is made for as many."""
TRACED_TOKENS = 3
"""Tokens that are traced: the first comes of the whole prompt, and every later one repeats the one before."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Recipe:
    """One run of litgpt."""

    release: str
    """Release of litgpt whose code runs."""
    gpu: str
    """memplan's profile."""
    method: Method
    """The script: ``finetune/lora.py`` and so on."""
    model: str
    """Name in ``litgpt.config``."""
    quantize: str = ""
    """``nf4``, ``nf4-dq`` or nothing."""
    micro_batch: int = 1
    """Samples per iteration."""
    length: int = 0
    """Tokens of the longest batch."""
    repeats_longest: bool = False
    """Do batches of that length follow each other? The resource tables force the longest sample once, at the start."""
    rank: int = 8
    """LoRA's rank."""
    dropout: float = 0.05
    """LoRA's dropout."""
    everywhere: bool = False
    """LoRA on every linear layer, or (litgpt's default) on queries and values."""

    def as_dict(self) -> dict[str, object]:
        """As JSON takes it."""
        return asdict(self)


def _table(method: Method, model: str, quantize: str = "", *, batch: int = 1, length: int = 0) -> Recipe:
    """A row of the resource tables."""
    release = LATE if method.startswith("adapter") else EARLY
    return Recipe(
        release=release,
        gpu="a100-40g",
        method=method,
        model=model,
        quantize=quantize,
        micro_batch=batch,
        length=length,
    )


def _hub(model: str, quantize: str = "", *, batch: int, rank: int = 32, dropout: float = 0.05) -> Recipe:
    """A row of the configuration hub (config_hub/finetune/MODEL/{lora,qlora}.yaml).

    Rank 32 goes with queries and values there, smaller ranks with every layer.
    """
    return Recipe(
        release=LATE,
        gpu="a10g",
        method="lora",
        model=model,
        quantize=quantize,
        micro_batch=batch,
        length=HUB_LENGTH,
        repeats_longest=True,
        rank=rank,
        dropout=dropout,
        everywhere=rank < 32,
    )


PHI, STABLELM, LLAMA, LLAMA_13B = "phi-1_5", "stablelm-base-alpha-3b", "Llama-2-7b-hf", "Llama-2-13b-hf"

# Lengths are the tables' own: the longest sample of Alpaca in the model's tokens.
RECIPES = {
    "litgpt-rt-121": _table("lora", PHI, "nf4", length=1044),
    "litgpt-rt-122": _table("lora", PHI, "nf4-dq", length=1044),
    "litgpt-rt-123": _table("lora", PHI, batch=2, length=1044),
    "litgpt-rt-124": _table("lora", PHI, batch=4, length=1044),
    "litgpt-rt-125": _table("lora", STABLELM, length=1034),
    "litgpt-rt-127": _table("lora", STABLELM, "nf4-dq", length=1034),
    "litgpt-rt-129": _table("lora", STABLELM, batch=4, length=1034),
    "litgpt-rt-130": _table("lora", LLAMA, length=1304),
    "litgpt-rt-134": _table("lora", LLAMA_13B, length=1304),
    "litgpt-rt-135": _table("lora", LLAMA_13B, "nf4", length=1304),
    "litgpt-rt-136": _table("lora", LLAMA_13B, "nf4-dq", length=1304),
    "litgpt-rt-137": _table("adapter", STABLELM, length=1034),
    "litgpt-rt-140": _table("adapter", LLAMA, length=1304),
    "litgpt-rt-142": _table("adapter", LLAMA, "nf4-dq", length=1304),
    "litgpt-rt-143": _table("adapter_v2", STABLELM, length=1034),
    "litgpt-rt-146": _table("adapter_v2", LLAMA, length=1304),
    "litgpt-rt-147": _table("adapter_v2", LLAMA, "nf4", length=1304),
    "litgpt-rt-162": _table("generate", STABLELM),
    "litgpt-rt-166": _table("generate", LLAMA, "nf4"),
    "litgpt-rt-167": _table("generate", LLAMA, "nf4-dq"),
    "litgpt-rt-169": _table("generate", LLAMA_13B, "nf4"),
    "litgpt-rt-172": _table("generate", "CodeLlama-34b-hf", "nf4-dq"),
    "litgpt-rt-173": _table("generate", "falcon-40b", "nf4"),
    "litgpt-rt-175": _table("generate", "Llama-2-70b-hf", "nf4-dq"),
    "litgpt-hub-176": _hub("falcon-7b", batch=1),
    "litgpt-hub-181": _hub("Gemma-2b", batch=2, rank=8, dropout=0.1),
    "litgpt-hub-183": _hub("Gemma-7b", "nf4", batch=1, rank=16, dropout=0.1),
    "litgpt-hub-184": _hub("Gemma-2-2b", batch=2, rank=8, dropout=0.1),
    "litgpt-hub-186": _hub("Gemma-2-9b", "nf4", batch=1, rank=16, dropout=0.1),
    "litgpt-hub-188": _hub(LLAMA, batch=2),
    "litgpt-hub-190": _hub("Llama-3-8B", batch=1),
    "litgpt-hub-192": _hub("Llama-3-8B", "nf4", batch=2),
    "litgpt-hub-193": _hub("Llama-3.1-8B", batch=1),
    "litgpt-hub-204": _hub("Mistral-7B-v0.1", batch=2),
    "litgpt-hub-209": _hub("phi-2", batch=4, rank=8),
    "litgpt-hub-210": _hub("phi-2", "nf4", batch=4, rank=8),
    "litgpt-hub-212": _hub("Phi-3-mini-4k-instruct", batch=4, rank=8),
    "litgpt-hub-215": _hub(STABLELM, batch=1),
    "litgpt-hub-217": _hub(STABLELM, "nf4", batch=1),
    # TinyLlama's configurations entered the hub two days before 0.2.0 (litgpt #1113, 13 March 2024). All norms are
    # trained here, so the release matters: the later one keeps their inputs in fp32.
    "litgpt-hub-218": Recipe(
        release=EARLY,
        gpu="a10g",
        method="full",
        model="tiny-llama-1.1b",
        micro_batch=4,
        length=HUB_LENGTH,
        repeats_longest=True,
    ),
}
"""Id in ``measured.csv`` → what ran."""

LABELLED_SHARDED = frozenset({"litgpt-hub-181", "litgpt-hub-188", "litgpt-hub-209"})
"""Rows labelled with four GPUs whose own configuration says ``devices: 1``; they run as the configuration says."""

_SHARDED = "sharded by FSDP over several GPUs, and one free length of batches per row"

EXCLUDED = {
    **dict.fromkeys((f"litgpt-rt-{number}" for number in (149, 151, 153, 154, 155, 157, 158)), _SHARDED),
    "litgpt-hub-195": "parameters, gradients and two moments of its own recipe take 12.0 GB, more than the figure",
    "litgpt-hub-207": "sharded over two GPUs by its own recipe, and labelled with four",
    "litgpt-hub-191": "repeats litgpt-hub-190: the same recipe on one GPU, and the same figure",
    "litgpt-hub-205": "repeats litgpt-hub-204: the same recipe on one GPU, and the same figure",
}
"""Id in ``measured.csv`` → why it is left out."""
