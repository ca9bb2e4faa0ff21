"""What PyTorch itself offers for checkpointing, put on a model as its documentation shows."""

from collections.abc import Callable
from functools import partial
from typing import Any

import torch
from torch import nn
from torch.distributed.algorithms._checkpoint.checkpoint_wrapper import checkpoint_wrapper
from torch.utils.checkpoint import CheckpointPolicy, create_selective_checkpoint_contexts

from memplan.runtime.checkpoint.blocks import repeated_blocks

_ATEN = torch.ops.aten
_MATRIX = frozenset({_ATEN.mm.default, _ATEN.addmm.default})
"""torchtitan counts ``mm``, since its layers have no biases; with one the same product is an ``addmm``."""
_SAVED = _MATRIX | {
    _ATEN._scaled_dot_product_efficient_attention.default,
    _ATEN._scaled_dot_product_flash_attention.default,
    _ATEN._scaled_dot_product_flash_attention_for_cpu.default,
    _ATEN.max.default,
}
"""The ops that torchtitan's selective policy saves (``distributed/activation_checkpoint.py``), those that one device
runs."""


def selective(model: nn.Module) -> nn.Module:
    """Save attention and every second matrix product of each repeated block; run the rest again."""
    _without_cache(model)
    for name in repeated_blocks(model):
        parent, _, own = name.rpartition(".")
        block = model.get_submodule(name)
        setattr(model.get_submodule(parent), own, checkpoint_wrapper(block, context_fn=_contexts))
    return model


def _contexts() -> Any:
    return create_selective_checkpoint_contexts(_policy())


def _policy() -> Callable[..., CheckpointPolicy]:
    seen = {False: 0, True: 0}

    def decide(context: Any, op: Any, *_: Any, **__: Any) -> CheckpointPolicy:
        again = context.is_recompute
        seen[again] += op in _MATRIX
        second = op in _MATRIX and seen[again] % 2 == 0
        return CheckpointPolicy.MUST_SAVE if op in _SAVED and not second else CheckpointPolicy.PREFER_RECOMPUTE

    return decide


def memory_budget(model: nn.Module, setting: float) -> nn.Module:
    """Compile with ``torch._functorch.config.activation_memory_budget``."""
    from torch._functorch import config

    _without_cache(model)
    config.activation_memory_budget = setting
    model.compile(backend="aot_eager", dynamic=False)
    return model


def policy(name: str) -> Callable[[nn.Module], nn.Module]:
    """``none``, ``selective`` or ``compiled:SETTING``."""
    way, _, setting = name.partition(":")
    if way == "compiled":
        return partial(memory_budget, setting=float(setting))
    return {"none": lambda model: model, "selective": selective}[way]


def _without_cache(model: nn.Module) -> None:
    """A cache of keys and values would grow when a block runs again; libraries turn it off with their own switch."""
    if hasattr(model, "config"):
        model.config.use_cache = False
