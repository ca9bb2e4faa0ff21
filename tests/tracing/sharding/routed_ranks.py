"""A small Mixtral whose experts two ranks share by transformers' all-to-all, and real steps with forced routing."""

from collections import Counter
from contextlib import nullcontext
from importlib import import_module
from typing import Any

import torch
from torch import nn
from torch.distributed.device_mesh import DeviceMesh, init_device_mesh
from torch.utils._python_dispatch import TorchDispatchMode

from memplan.tracing.routing import KINDS, Routing
from tests.tracing.routers import indices_of

RANKS, TOKENS, EXPERTS, TOP, LAYERS, WORDS = 2, 64, 8, 2, 2, 64
KERNELS = ("eager", "grouped_mm")
"""What runs the experts: a loop over them, or one kernel."""


def mixtral(kernel: str) -> nn.Module:
    transformers: Any = import_module("transformers")
    config = transformers.MixtralConfig(
        hidden_size=32, intermediate_size=48, num_hidden_layers=LAYERS, num_attention_heads=4, num_key_value_heads=4,
        num_local_experts=EXPERTS, num_experts_per_tok=TOP, vocab_size=WORDS, output_router_logits=False,
        experts_implementation=kernel, attn_implementation="eager",
    )  # fmt: skip
    return transformers.MixtralForCausalLM(config)


def batch(batch_size: int = 1) -> dict[str, Any]:
    words = torch.randint(0, WORDS, (batch_size, TOKENS))
    return {"input_ids": words, "labels": words, "use_cache": False}


def sgd(parameters: Any) -> torch.optim.Optimizer:
    return torch.optim.SGD(parameters, lr=0.0, foreach=False)


def parallelize(model: Any, _: DeviceMesh | None) -> nn.Module:
    """Experts alone are shared, so that nothing but routing moves tokens."""
    configuration: Any = import_module("transformers.distributed.configuration_utils")
    experts: Any = import_module("transformers.distributed.expert_parallel")
    ranks = init_device_mesh("cpu", (RANKS,), mesh_dim_names=("ep",))
    alone = init_device_mesh("cpu", (RANKS, 1), mesh_dim_names=("others", "tp"))["tp"]
    _, plan, _ = model._resolve_parallel_plans(configuration.DistributedConfig(fsdp_size=RANKS, ep_size=RANKS))
    return experts.apply_expert_parallelism(model, ranks, alone, plan, ep_implementation="all_to_all")


def force(model: Any, indices: torch.Tensor) -> None:
    """Let every router choose these experts; what else it does stays."""

    def choose(_: nn.Module, __: object, result: tuple[torch.Tensor, ...]) -> None:
        result[2].data.copy_(indices)

    for layer in model.model.layers:
        layer.mlp.gate.register_forward_hook(choose)


WATCHED = ("_c10d_functional.all_to_all_single", "aten._grouped_mm", "aten.mm", "aten.silu", "aten.index.Tensor")
"""Ops whose results have as many rows as tokens came, or as an expert got."""


def is_watched(name: str) -> bool:
    return name.startswith(tuple(f"{each}." if "Tensor" not in each else each for each in WATCHED))


class Results(TorchDispatchMode):
    """Remembers how large the results of watched ops are."""

    def __init__(self) -> None:
        super().__init__()
        self.sizes: Counter[str] = Counter()

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        del types
        result = func(*args, **kwargs or {})
        if is_watched(str(func)):
            self.sizes[f"{func} {result.untyped_storage().nbytes()}"] += 1
        return result


def steps(kernel: str, indices: torch.Tensor, *, shared: bool, times: int = 3) -> Counter[str]:
    """Train, and return how large results were in the last step."""
    model: Any = mixtral(kernel).train()
    if shared:
        parallelize(model, None)
    force(model, indices)
    optimizer = sgd(model.parameters())
    for _ in range(times):
        given = None
        given = batch()
        results = Results() if shared else None
        with results or nullcontext():
            output = model(**given)
            loss = output.loss
            loss.backward()
            optimizer.step()
            optimizer.zero_grad()
    return results.sizes if results else Counter()


def told(_: int, ranks: int) -> dict[str, dict[str, int]]:
    """Sizes of results for each way of routing with each kernel; all ranks send alike."""
    found = {}
    for kernel in KERNELS:
        for kind in KINDS:
            loads = Routing(kind=kind, ranks=ranks).loads(TOKENS * TOP, EXPERTS, TOP)
            found[f"{kernel} {kind}"] = dict(steps(kernel, indices_of(loads, TOP), shared=True, times=1))
    return found
