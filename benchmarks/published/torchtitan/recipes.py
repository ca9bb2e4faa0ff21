"""What each run had, by the row's id."""

from dataclasses import dataclass, replace
from typing import Literal


@dataclass(frozen=True, slots=True, kw_only=True)
class Recipe:
    """One run of torchtitan on Llama 3 8B, eager, FSDP2 over all ranks."""

    ranks: int = 8
    batch: int = 1
    """Sequences per rank."""
    length: int = 4096
    """Tokens of a sequence."""
    checkpoint: Literal["none", "2", "full"] = "none"
    """``activation_checkpoint.mode``; ``2`` is ``selective`` with ``selective_ac_option = "2"``, every second layer."""
    float8: bool = False
    """Linear layers but the last one swapped for torchao's ``Float8LinearNoCompile``."""
    precompute: bool = True
    """Do float8 layers make what backward needs in forward? torchao's default; the other is its advice for layers that
    are checkpointed."""


RECIPES = {
    "ao-nocompile-52": Recipe(),
    "ao-nocompile-56": Recipe(checkpoint="2", float8=True),
    "ao-nocompile-full-59": Recipe(checkpoint="full", float8=True),
}
"""Id in ``measured.csv`` → what ran. Batch 1 is ``llama3_8b.toml``'s."""

READINGS = {name: replace(recipe, precompute=False) for name, recipe in RECIPES.items() if recipe.float8}
"""What the float8 rows may have been as well: the README does not say, and its example gives the default."""
