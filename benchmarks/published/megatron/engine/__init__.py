"""Stands for Transformer Engine, which has no build for the CPU: modules by its names, with shapes but no numbers.

megatron-core's own classes (core/extensions/transformer_engine.py) are built on them. Every stand-in says which source
it was written after, leaves on the device what that leaves there, and keeps what that keeps; bf16 alone, no fp8.
"""

import sys
from types import ModuleType
from typing import Any

import torch

from published.megatron.engine import optimizers
from published.megatron.engine.attention import DotProductAttention
from published.megatron.engine.gemm import get_dummy_wgrad
from published.megatron.engine.grouped import GroupedLinear
from published.megatron.engine.linear import LayerNormLinear, Linear
from published.megatron.engine.norms import LayerNorm, RMSNorm

__all__ = ["install"]

VERSION = "2.17.1"


class _Unused:
    """megatron-core names it, and the recipes do without."""


class _States:
    @staticmethod
    def is_fp8_enabled() -> bool:
        return False


_UNUSED = {
    "common.recipe": ("DelayedScaling",),
    "pytorch": ("Fp8Padding", "Fp8Unpadding"),
    "pytorch.distributed": ("CudaRNGStatesTracker", "activation_recompute_forward"),
    "pytorch.fp8": ("fp8_autocast",),
    "pytorch.optimizers": ("FusedSGD",),
    "pytorch.ops": ("Sequential", "FusibleOperation"),
    "pytorch.router": (
        "fused_compute_score_for_moe_aux_loss", "fused_moe_aux_loss", "fused_topk_with_score_function",
    ),
    "pytorch.tensor": ("QuantizedTensor",),
}  # fmt: skip
_USED: dict[str, dict[str, Any]] = {
    "": {"__version__": VERSION},
    "pytorch": {
        each.__name__: each
        for each in (DotProductAttention, GroupedLinear, LayerNorm, LayerNormLinear, Linear, RMSNorm)
    },
    "pytorch.fp8": {"FP8GlobalStateManager": _States},
    "pytorch.module": {},
    "pytorch.module.base": {"get_dummy_wgrad": get_dummy_wgrad},
    "pytorch.optimizers": {
        each.__name__: each
        for each in (
            optimizers.FusedAdam,
            optimizers.multi_tensor_applier,
            optimizers.multi_tensor_l2norm,
            optimizers.multi_tensor_scale,
        )
    },
    "common": {},
}


def install() -> None:
    """Put them where ``import transformer_engine`` looks."""
    for name in sorted(_UNUSED.keys() | _USED):
        full = "transformer_engine" + (f".{name}" if name else "")
        module: Any = ModuleType(full)
        module.__path__ = []
        vars(module).update({each: type(each, (_Unused, torch.nn.Module), {}) for each in _UNUSED.get(name, ())})
        vars(module).update(_USED.get(name, {}))
        sys.modules[full] = module
        parent, _, last = full.rpartition(".")
        if parent:
            setattr(sys.modules[parent], last, module)
