"""One call of a region handed to Inductor: a graph of one opaque node, which AOTAutograd traces through."""

import operator
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from typing import Any

import torch
import torch.fx
from torch._guards import detect_fake_mode
from torch.utils._python_dispatch import _disable_current_modes

from memplan.trace.inductor.lowering import compile_graph, lowering
from memplan.trace.records import DeviceTraits

Flat = Callable[..., tuple[torch.Tensor, ...]]
"""Tensors to tensors."""


def captured(function: Flat, tensors: Sequence[torch.Tensor], device: DeviceTraits) -> Flat:
    """Compile a function for the tensors that it is called with.

    Args:
        function: What a region computes.
        tensors: Fake tensors; nothing of what runs on them here is recorded.
        device: What to compile for.

    Returns:
        AOTAutograd's runtime around Inductor's code, to be called with such tensors as often as wished.
    """
    with _disable_current_modes(), lowering(device):  # type: ignore[no-untyped-call]
        results = _count(function, tensors)
        run: Flat = compile_graph(_graph(function, tensors, results), tensors, device)
    return run


def _count(function: Flat, tensors: Sequence[torch.Tensor]) -> int:
    """How many tensors it returns, which a graph says before it is traced."""
    with detect_fake_mode(tensors) or nullcontext(), torch.no_grad():
        return len(function(*tensors))


def _graph(function: Flat, tensors: Sequence[torch.Tensor], results: int) -> torch.fx.GraphModule:
    graph = torch.fx.Graph()
    inputs = [graph.placeholder(f"input_{index}") for index in range(len(tensors))]
    for node, tensor in zip(inputs, tensors, strict=True):
        node.meta["val"] = node.meta["example_value"] = tensor
    call = graph.call_function(function, tuple(inputs))
    graph.output(tuple(graph.call_function(operator.getitem, (call, index)) for index in range(results)))
    return torch.fx.GraphModule(torch.nn.Module(), graph)
