"""Why a row of Megatron-LM's is left out; decided before any error was looked at."""

from published.table import Row

MULTI_NODE = "it ran on several nodes, how many is not said, and the optimizer is sharded over them"
ROUTED = "mixture of experts: how many tokens reach the last rank's experts depends on weights and data"
FSDP = "Megatron-FSDP, which the program does not run"
PACKED = "flash attention packs the tokens that are no padding: how many depends on the data"
VOCABULARY = "the vocabulary file's size is not said, nor whether there is a binary head"
REASONS = (
    ("Megatron-FSDP", FSDP),
    ("experts=", ROUTED),
    ("bert L=", VOCABULARY),
    ("multi-node", MULTI_NODE),
)
"""Words of a row → reason; the first that fits."""


def reason(row: Row) -> str:
    """The reason for a row without a recipe."""
    said = " ".join((row["model"], row["n_gpus"], row["parallelism"]))
    return next((why for words, why in REASONS if words in said), PACKED)
