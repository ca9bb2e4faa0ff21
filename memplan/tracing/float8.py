"""``--float8``: linear layers that multiply in float8, put in place by torchao itself, as a training script does.

Weights, gradients and optimizer states stay what they are; each matrix is cast on its way into a product. What that
keeps for backward is torchao's choice, and its code runs here.
"""

from typing import Any

from torch import nn

from memplan.errors import UsageError
from memplan.job.spec import Float8
from memplan.tracing.adapters import required

MULTIPLE = 16
"""Both sizes of a weight must be one of it (torch/_meta_registrations.py, ``meta_scaled_mm``)."""


def to_float8(model: nn.Module, recipe: Float8) -> int:
    """Replace linear layers; how many were replaced.

    Left alone are layers whose sizes the kernel refuses, and the output head of a transformers model: torchao's own
    example leaves the last layer alone (README of ``torchao/float8``, 0.18).

    Args:
        model: The model in the job's precision; changed in place.
        recipe: One of torchao's (``Float8LinearRecipeName``).

    Raises:
        UsageError: torchao is not installed, or there is no such layer.
    """
    required("torchao", "--float8", "torchao")
    library = required("torchao.float8", "--float8", "torchao")
    get_head = getattr(model, "get_output_embeddings", None)
    head = None if get_head is None else get_head()

    def fits(module: nn.Module, _: str) -> bool:
        if type(module) is not nn.Linear or module is head:
            return False
        return not any(side % MULTIPLE for side in (module.in_features, module.out_features))

    count = sum(fits(module, name) for name, module in model.named_modules())
    if not count or type(model) is nn.Linear:
        what = f"there is no linear layer inside the model whose sizes are multiples of {MULTIPLE}"
        raise UsageError(what, where=f"--float8 {recipe}")
    config: Any = library.Float8LinearConfig.from_recipe_name(recipe)
    library.convert_to_float8_training(model, module_filter_fn=fits, config=config)
    return count


def described(count: int, recipe: Float8) -> str:
    """A sentence for the report."""
    done = f"torchao's {recipe} recipe multiplies {count} linear layers in float8"
    return f"{done}; FSDP gathers weights before they are cast"
