"""Real models inside a planned arena, on the CPU: equal results, and what their kernels still allocate."""

from collections.abc import Callable, Iterator, Mapping
from typing import Any

import torch
from torch.profiler import ProfilerActivity, profile
from torch.utils._pytree import tree_leaves

from memplan.plan.reuse.arena import plan_arena, plan_graph
from memplan.units import format_bytes

Made = tuple[torch.nn.Module, tuple[Any, ...], dict[str, Any]]


def gpt2() -> Made:
    """GPT-2, 124 M parameters."""
    from transformers import GPT2Config, GPT2LMHeadModel

    return GPT2LMHeadModel(GPT2Config()), (torch.randint(0, 50257, (1, 256)),), {"use_cache": False}


def vit() -> Made:
    """ViT-B/16, 86 M parameters."""
    from transformers import ViTConfig, ViTModel

    return ViTModel(ViTConfig()), (torch.randn(1, 3, 224, 224),), {}


def resnet() -> Made:
    """ResNet-50, 24 M parameters."""
    from transformers import ResNetConfig, ResNetModel

    return ResNetModel(ResNetConfig()), (torch.randn(1, 3, 224, 224),), {}


def unet() -> Made:
    """Stable Diffusion's UNet at a fifth of its width."""
    from diffusers import UNet2DConditionModel

    model = UNet2DConditionModel(
        sample_size=32, block_out_channels=(64, 128, 256, 256), cross_attention_dim=256, attention_head_dim=8
    )
    return model, (torch.randn(1, 4, 32, 32), torch.tensor(7), torch.randn(1, 20, 256)), {"return_dict": False}


MODELS: Mapping[str, Callable[[], Made]] = {"ResNet-50": resnet, "ViT-B": vit, "GPT-2": gpt2, "UNet": unet}


def rows(only: frozenset[str], seconds: float) -> Iterator[str]:
    """Bytes that one inference allocates: eager, as a graph in an arena, unmodified in an arena."""
    yield (
        f"{'':11}{'eager':>12}{'results':>12}{'graph: arena':>14}{'allocates':>12}{'equal':>7}"
        f"{'unmodified: arena':>19}{'allocates':>12}{'equal':>7}  ops that allocate in the graph"
    )
    for name, make in MODELS.items():
        if not only or name in only:
            yield _row(name, make, seconds)


def _row(name: str, make: Callable[[], Made], seconds: float) -> str:
    torch.manual_seed(0)
    model, args, kwargs = make()
    model.eval()

    def step() -> Any:
        with torch.no_grad():
            return model(*args, **kwargs)

    expected = _tensors(step())
    results = sum(tensor.untyped_storage().nbytes() for tensor in expected)
    graph = plan_graph(model, *args, time_limit=seconds, **kwargs)
    inputs = _tensors((args, kwargs))
    same_graph = _equal(_tensors(graph(*inputs)), expected)
    arena = plan_arena(step, time_limit=seconds)
    with arena:
        found = _tensors(step())
    same = _equal(found, expected)
    del found

    def in_arena() -> None:
        with arena:
            step()

    copied = ", ".join(
        f"{op.removeprefix('aten.').removesuffix('.default')} x{times}" for op, times in graph.copied.items()
    )
    figures = [allocated(step), results, graph.height, allocated(lambda: graph(*inputs))]
    texts = [format_bytes(figure) for figure in figures]
    return (
        f"{name:11}{texts[0]:>12}{texts[1]:>12}{texts[2]:>14}{texts[3]:>12}{_word(same_graph):>7}"
        f"{format_bytes(arena.plan.height):>19}{format_bytes(allocated(in_arena)):>12}{_word(same):>7}  {copied}"
    )


def allocated(body: Callable[[], object]) -> int:
    """Bytes that PyTorch's CPU allocator hands out while something runs, as torch.profiler sees it."""
    with profile(activities=[ProfilerActivity.CPU], profile_memory=True) as profiler:
        body()
    found, stack = 0, list(profiler.profiler.kineto_results.experimental_event_tree())
    while stack:
        node = stack.pop()
        if str(node.tag).endswith("Allocation"):
            found += max(0, node.typed[1].alloc_size)
        stack.extend(node.children)
    return found


def _tensors(value: object) -> list[torch.Tensor]:
    return [leaf for leaf in tree_leaves(value) if isinstance(leaf, torch.Tensor)]


def _equal(found: list[torch.Tensor], expected: list[torch.Tensor]) -> bool:
    return all(torch.equal(a, b) for a, b in zip(found, expected, strict=True))


def _word(same: bool) -> str:
    return "yes" if same else "NO"
