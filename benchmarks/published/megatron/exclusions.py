"""Why a row of Megatron-LM's is left out; decided before any error was looked at."""

from published.table import Row

MULTI_NODE = "it ran on several nodes, how many is not said, and the optimizer is sharded over them"
QUANTIZED = "CUDA graphs and fp8, which the engine's stand-ins do not have"
OVERLAPPED = "forward and backward passes of two micro-batches overlap, which the program does not run"
OFFLOADED = "activations go to the host by Megatron's own code, which the program does not run"
LATENT = "latent attention, predicted further tokens and fused permutation, which the program does not run"
MUON = "the optimizer Muon, which the program does not run"
FSDP = "Megatron-FSDP, which the program does not run"
PACKED = "flash attention packs the tokens that are no padding: how many depends on the data"
BERT = "BERT, which the program does not run"
REASONS = (
    ("Megatron-FSDP", FSDP),
    ("multi-node", MULTI_NODE),
    ("bert L=", BERT),
    ("attn_cudagraph", QUANTIZED),
    ("a2a_ovlp_8experts", OVERLAPPED),
    ("selective_recompute", OVERLAPPED),
    ("offloading", OFFLOADED),
    ("memory_speed", LATENT),
    ("muon", MUON),
)
"""Words of a row → reason; the first that fits."""


def reason(row: Row) -> str:
    """The reason for a row without a recipe."""
    said = " ".join((row["id"], row["model"], row["n_gpus"], row["parallelism"]))
    return next((why for words, why in REASONS if words in said), PACKED)
