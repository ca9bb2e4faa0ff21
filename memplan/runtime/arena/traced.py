"""A model as a graph of the ops that eager PyTorch runs below autograd, without a trace of the tracing in the model."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import torch
from torch.fx import Graph, GraphModule

from memplan.errors import UsageError
from memplan.seam.pytree import TreeSpec, tree_flatten, tree_leaves, tree_map


def own(tensor: torch.Tensor) -> torch.Tensor:
    """A copy in memory of its own: one input that is given twice is two, and none is spread over itself."""
    return tensor.detach().clone().resolve_conj().resolve_neg()


@contextmanager
def kept(model: torch.nn.Module) -> Iterator[None]:
    """Give buffers their values back: a model that counts its calls must not count those of its capture."""
    before = [(buffer, buffer.clone()) for buffer in model.buffers()]
    try:
        yield
    finally:
        for buffer, value in before:
            if not torch.equal(buffer, value):
                buffer.copy_(value)


def traced(
    model: torch.nn.Module, args: tuple[Any, ...], kwargs: Mapping[str, Any]
) -> tuple[GraphModule, list[torch.Tensor], TreeSpec]:
    """A model's ops below autograd, the tensors among its inputs, and how its results are put together.

    The model is in evaluation mode.

    Raises:
        UsageError: ``torch.export`` refuses the model, or shapes depend on values.
    """
    from torch.fx.experimental.proxy_tensor import make_fx

    leaves = [leaf for leaf in tree_leaves((args, kwargs)) if isinstance(leaf, torch.Tensor)]

    structures: list[TreeSpec] = []

    def flat(*tensors: torch.Tensor) -> list[Any]:
        remaining = iter(tensors)

        def put(leaf: object) -> object:
            return next(remaining) if isinstance(leaf, torch.Tensor) else leaf

        placed_args, placed_kwargs = tree_map(put, (args, kwargs))
        found, structure = tree_flatten(program(*placed_args, **placed_kwargs))
        structures.append(structure)
        return found

    try:
        exported = torch.export.export(model, args, dict(kwargs), strict=False)
        _refuse_shapes_by_value(exported.graph)
        program = exported.module()
        module = make_fx(flat)(*leaves)
    except UsageError:
        raise
    except Exception as error:
        raise UsageError(f"torch.export refuses this model: {error}") from error
    module.graph.eliminate_dead_code()
    module.recompile()
    return module, leaves, structures[-1]


def _refuse_shapes_by_value(graph: Graph) -> None:
    """Inputs have static shapes, so that what is symbolic comes out of a tensor's values."""
    for node in graph.nodes:
        leaves = tree_leaves(node.meta.get("val"))
        sizes = [size for leaf in leaves if isinstance(leaf, torch.Tensor) for size in leaf.shape]
        if any(isinstance(size, torch.SymInt | torch.SymFloat | torch.SymBool) for size in [*leaves, *sizes]):
            raise UsageError(
                f"{node.target} makes shapes or numbers of tensors' values, which a static graph cannot",
                where=node.name,
            )
