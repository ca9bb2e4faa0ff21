"""The joint forward and backward graph of a model, traced on fake tensors: no device is needed and no memory taken."""

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable

    import torch
    from torch.fx import GraphModule


@dataclass(frozen=True, slots=True, kw_only=True)
class JointGraph:
    """A joint graph as AOTAutograd traced it."""

    module: "GraphModule"
    """Parameters, buffers, arguments and tangents to forward's results and gradients."""
    forward_outputs: int
    """How many of its results are forward's."""


class _Captured(Exception):  # noqa: N818 (it is no failure: it stops AOTAutograd before it compiles)
    def __init__(self, graph: JointGraph) -> None:
        super().__init__()
        self.graph = graph


def joint_graph(
    model: "torch.nn.Module",
    args: tuple[Any, ...],
    *,
    loss: "Callable[[Any], torch.Tensor] | None" = None,
) -> JointGraph:
    """Trace one training step of a model up to its gradients, as eager PyTorch runs it on its tensors' device.

    Args:
        model: Real, fake or meta parameters; one that is tied is one input.
        args: Tensors, or other values, in lists and dictionaries too, given to the model's forward.
        loss: From the model's result to a scalar; None: the result is the loss.

    Returns:
        The graph, dead code left out. Attention and other kernels are those of the device of the tensors given.
    """
    import torch

    from memplan.seam.fake import FakeTensorMode
    from memplan.seam.functorch import aot_function
    from memplan.seam.pytree import tree_map_only

    mode = FakeTensorMode(allow_non_fake_inputs=True)
    state: dict[str, torch.Tensor] = {name: mode.from_tensor(tensor) for name, tensor in _state(model).items()}
    inputs = tree_map_only(torch.Tensor, mode.from_tensor, args)

    def step(state: "dict[str, torch.Tensor]", *inputs: Any) -> "torch.Tensor":
        result = torch.func.functional_call(model, state, inputs)
        return result if loss is None else loss(result)

    def stop(module: "GraphModule", _: object, *, num_fwd_outputs: int, **__: object) -> None:
        module.graph.eliminate_dead_code()
        raise _Captured(JointGraph(module=module, forward_outputs=num_fwd_outputs))

    try:
        with mode:
            aot_function(step, fw_compiler=lambda module, _: module, partition_fn=stop)(state, *inputs)
    except _Captured as captured:
        return captured.graph
    raise AssertionError("nothing requires a gradient")


def _state(model: "torch.nn.Module") -> "dict[str, torch.Tensor]":
    return {**dict(model.named_parameters()), **dict(model.named_buffers())}
