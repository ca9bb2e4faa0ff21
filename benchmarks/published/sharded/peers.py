"""What others say of the same runs: formulas, in bytes for one rank. None is told more than the run's own options."""

import importlib
import importlib.util

from published.megatron import BEGINNING, END
from published.megatron.recipes import RANKS, Recipe
from published.megatron.rows import RECIPES

GPT_WIDTH, GPT_LAYERS, GPT_LENGTH, GPT_BATCH, GPT_TOKENS = 512, 12, 1024, 4, 50_304
"""Of Megatron-LM's functional tests of GPT."""
LLAMA_PARAMETERS, LLAMA_LARGEST = 8_030_261_248, 128_256 * 4_096
"""Llama 3 8B, and its largest layer, which DeepSpeed's estimator asks for."""


COLUMNS = {
    "fsdp_mem_tracker": "torch's FSDPMemTracker, of allocated bytes; it counts what DTensor tries shapes with in AdamW",
    "megatron_formula": "Megatron-LM's report_theoretical_memory, of the fullest stage",
    "deepspeed_estimator": "DeepSpeed's estimate_zero3_model_states_mem_needs: states alone, as its name says",
}
"""Column → whose figure it is."""


def formulas(identity: str, ranks: str) -> dict[str, int]:
    """All formulas that apply to a row, by column, in bytes for one rank.

    Args:
        identity: Its id in the table.
        ranks: GPUs, as far as the table says how many.
    """
    recipe = RECIPES.get(identity.removeprefix(BEGINNING).removesuffix(END))
    if recipe is not None:
        # The formula knows no encoder beside a decoder; here it is told of none of what Transformer Engine's rows set.
        plain = recipe.family == "gpt" and not recipe.engine
        return {"megatron_formula": round(megatron_formula(recipe))} if plain else {}
    # A peer, not a part: where it is not installed its column stays empty.
    asked = identity.startswith("ao-") and importlib.util.find_spec("deepspeed") is not None
    return {"deepspeed_estimator": round(deepspeed_estimate(int(ranks)))} if asked else {}


def megatron_formula(recipe: Recipe) -> float:
    """Weights and optimizer (18 bytes a parameter, 6 + 12/N sharded), and activations without sequence parallelism."""
    tensor, stages, width = recipe.tensor_parallel, recipe.pipeline_parallel, GPT_WIDTH
    multiple = 128 * tensor
    vocabulary = -(-GPT_TOKENS // multiple) * multiple
    block = 2 * width * (4 * width + 2) + 4 * width * width
    parameters = ((block * GPT_LAYERS + 2 * width) / stages + width * vocabulary) / tensor
    data_ranks = RANKS // (tensor * stages)
    weights = parameters * (6 + 12 / data_ranks if recipe.distributed_optimizer else 18)
    tokens = GPT_LENGTH * GPT_BATCH
    activations = tokens * width * (10 + 24 / tensor) * GPT_LAYERS + tokens * stages * (8 + width)
    if stages > 1:
        activations *= min(1, recipe.micro_batches / stages)
    else:
        activations += 2 * (tokens * vocabulary / tensor + tokens * width)
    return weights + 1.05 * activations


def deepspeed_estimate(ranks: int) -> float:
    """DeepSpeed's own function, for ZeRO 3 without offload."""
    from memplan.tracing.sharding.zero.library import deepspeed

    # Else it would look for a GPU, and say that there is none.
    deepspeed()
    module = importlib.import_module("deepspeed.runtime.zero.stage3")
    _, gpu, _ = module.estimate_zero3_model_states_mem_needs(
        LLAMA_PARAMETERS, LLAMA_LARGEST, num_gpus_per_node=ranks, num_nodes=1, cpu_offload=False,
        cpu_offload_params=False, zero_init=True,
    )  # fmt: skip
    return float(gpu)
