"""What PyTorch itself offers for checkpointing, put on a model as its documentation shows."""
# ruff: noqa: SLF001 - PyTorch names its ops and settings so.

import json
from collections import Counter, defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch import nn
from torch.distributed._tools.sac_estimator import OPS_TO_ALWAYS_SKIP
from torch.distributed.algorithms._checkpoint.checkpoint_wrapper import checkpoint_wrapper
from torch.utils.checkpoint import CheckpointPolicy, checkpoint, create_selective_checkpoint_contexts
from torch.utils.flop_counter import FlopCounterMode

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


def _attention(query: Sequence[int], key: Sequence[int], *_: Any, **__: Any) -> int:
    batch, heads, length, width = query
    return 4 * batch * heads * length * key[2] * width


def _attention_backward(_: Any, query: Sequence[int], key: Sequence[int], *__: Any, **___: Any) -> int:
    return _attention(query, key) * 5 // 2


ATTENTION = {
    torch.ops.aten._scaled_dot_product_flash_attention_for_cpu: _attention,
    torch.ops.aten._scaled_dot_product_flash_attention_for_cpu_backward: _attention_backward,
}
"""The counter knows attention on CUDA alone; products are counted as it counts them there."""


@dataclass(slots=True)
class Tally:
    """FLOPs of what no dispatch mode sees from outside."""

    is_on: bool = False
    """A counter keeps tensors alive, so that it must not run where memory is measured."""
    flops: int = 0


def counter() -> FlopCounterMode:
    """Counts the FLOPs of what runs in its context."""
    return FlopCounterMode(display=False, custom_mapping=ATTENTION)


def selective(model: nn.Module, _: object = None) -> None:
    """Save attention and every second matrix product of each repeated block; run the rest again."""
    without_cache(model)
    for name in repeated_blocks(model):
        parent, _, own = name.rpartition(".")
        block = model.get_submodule(name)
        setattr(model.get_submodule(parent), own, checkpoint_wrapper(block, context_fn=_contexts))


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


def memory_budget(model: nn.Module, tally: Tally, *, setting: float) -> None:
    """Compile with ``torch._functorch.config.activation_memory_budget``; its graphs add their FLOPs to the tally."""
    from torch._dynamo.backends.common import aot_autograd
    from torch._functorch import config
    from torch._functorch.partitioners import min_cut_rematerialization_partition
    from torch.fx import GraphModule, Interpreter

    def interpreted(graph: GraphModule, _: Any) -> Callable[[list[Any]], Any]:
        def run(arguments: list[Any]) -> Any:
            if not tally.is_on:
                return Interpreter(graph).boxed_run(arguments)
            with counter() as counting:
                results = Interpreter(graph).boxed_run(arguments)
            tally.flops += counting.get_total_flops()
            return results

        run._boxed_call = True  # Its inputs can be freed while it runs, as aot_eager's.
        return run

    without_cache(model)
    config.activation_memory_budget = setting
    backend = aot_autograd(fw_compiler=interpreted, partition_fn=min_cut_rematerialization_partition)
    model.compile(backend=backend, dynamic=False)


def apply_saves(model: nn.Module, _: object = None, *, path: Path) -> None:
    """Checkpoint the modules that a plan file names, saving in each what it says."""
    without_cache(model)
    for name, ops in json.loads(path.read_text()).items():
        module = model.get_submodule(name)
        context = partial(_saving, ops)
        module.forward = partial(checkpoint, module.forward, use_reentrant=False, context_fn=context)


def _saving(ops: list[tuple[str, bool]]) -> Any:
    """Ops are told by name and call: a mask, which libraries leave out where they can read its values, shifts none."""
    saved = defaultdict(list)
    for name, is_saved in ops:
        saved[name].append(is_saved)
    seen: Counter[tuple[bool, str]] = Counter()

    def decide(context: Any, op: Any, *_: Any, **__: Any) -> CheckpointPolicy:
        name = op._overloadpacket.__name__
        call = seen[context.is_recompute, name]
        seen[context.is_recompute, name] += op not in OPS_TO_ALWAYS_SKIP
        is_saved = op not in OPS_TO_ALWAYS_SKIP and saved[name][call : call + 1] == [True]
        return CheckpointPolicy.MUST_SAVE if is_saved else CheckpointPolicy.PREFER_RECOMPUTE

    return create_selective_checkpoint_contexts(decide)


def policy(name: str) -> Callable[[nn.Module, Tally], None]:
    """``none``, ``selective``, ``compiled:SETTING`` or ``sac_ilp:FILE``.

    Returns:
        What changes a model and, where it counts them itself, notes FLOPs.
    """
    way, _, setting = name.partition(":")
    if way == "compiled":
        return partial(memory_budget, setting=float(setting))
    if way == "sac_ilp":
        return partial(apply_saves, path=Path(setting))
    return selective if way == "selective" else lambda *_: None


def without_cache(model: nn.Module) -> None:
    """A cache of keys and values would grow when a block runs again; libraries turn it off with their own switch."""
    for module in model.modules():
        if hasattr(module, "config"):
            module.config.use_cache = False
