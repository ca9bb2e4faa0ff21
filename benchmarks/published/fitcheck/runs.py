"""The ten runs and what was measured."""

from dataclasses import dataclass
from typing import Literal

Attention = Literal["eager", "sdpa"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    """One run of scripts/measure.py: QLoRA of rank 32 on the four attention projections, fp16, checkpointed."""

    model: str
    """Key of ``program.CONFIGURATIONS``."""
    batch: int
    """Samples."""
    length: int
    """Tokens of each."""
    attention: Attention
    """``sdpa`` is pinned to the memory-efficient kernel."""
    allocated_mib: int
    """``max_memory_allocated``, to the MiB."""


def _run(model: str, batch: int, length: int, attention: Attention, allocated_mib: int) -> Run:
    return Run(model=model, batch=batch, length=length, attention=attention, allocated_mib=allocated_mib)


RUNS = {
    "fitcheck-TinyLlama-1.1B-512-eage": _run("TinyLlama-1.1B", 2, 512, "eager", 1849),
    "fitcheck-TinyLlama-1.1B-1024-eage": _run("TinyLlama-1.1B", 2, 1024, "eager", 2876),
    "fitcheck-TinyLlama-1.1B-2048-eage": _run("TinyLlama-1.1B", 2, 2048, "eager", 6655),
    "fitcheck-TinyLlama-1.1B-512-SDPA": _run("TinyLlama-1.1B", 2, 512, "sdpa", 1847),
    "fitcheck-TinyLlama-1.1B-1024-SDPA": _run("TinyLlama-1.1B", 2, 1024, "sdpa", 2528),
    "fitcheck-TinyLlama-1.1B-2048-SDPA": _run("TinyLlama-1.1B", 2, 2048, "sdpa", 3897),
    "fitcheck-SmolLM2-1.7B-1024-eage": _run("SmolLM2-1.7B", 4, 1024, "eager", 5297),
    "fitcheck-SmolLM2-1.7B-1024-SDPA": _run("SmolLM2-1.7B", 4, 1024, "sdpa", 5281),
    "fitcheck-Qwen2.5-1.5B-1024-eage": _run("Qwen2.5-1.5B", 2, 1024, "eager", 6831),
    "fitcheck-Qwen2.5-1.5B-1024-SDPA": _run("Qwen2.5-1.5B", 2, 1024, "sdpa", 6823),
}
"""Id, as in the table of published peaks where it is there, → run."""
