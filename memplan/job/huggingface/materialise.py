"""Building a model under fake tensors without running its initialisation.

Initialisation costs time and reads values: ``trunc_normal_`` and the ``linspace(...).tolist()`` of stochastic-depth
schedules ask fake tensors for numbers that they do not have. The libraries' own answer is the meta device, on which
they load every checkpoint; so the model is built there, and its tensors are then made anew in the caller's fake mode.
"""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

    import torch


def build(make: "Callable[[], torch.nn.Module]") -> "torch.nn.Module":
    """Call ``make``: with real values on the CPU, or with fake tensors where the caller traces on those."""
    import torch

    from memplan.seam.fake import FakeTensor, unset_fake_temporarily

    if not isinstance(torch.empty(0), FakeTensor):
        return make()
    with unset_fake_temporarily(), torch.device("meta"):
        model = make()
    _materialise(model)
    return model


def _materialise(model: "torch.nn.Module") -> None:
    """Replace every tensor of the model by an empty one of the ambient mode; tied tensors stay tied."""
    import torch

    made: dict[torch.Tensor, torch.Tensor] = {}
    for module in model.modules():
        own: dict[str, torch.Tensor] = {}
        own |= module.named_parameters(recurse=False, remove_duplicate=False)
        own |= module.named_buffers(recurse=False, remove_duplicate=False)
        # Some modules keep a tensor as a plain attribute, for instance rotary embeddings their first frequencies.
        own |= {name: value for name, value in vars(module).items() if isinstance(value, torch.Tensor)}
        for name, tensor in own.items():
            if tensor not in made:
                made[tensor] = _empty_like(tensor)
            setattr(module, name, made[tensor])


def _empty_like(tensor: "torch.Tensor") -> "torch.Tensor":
    import torch

    empty = torch.empty_strided(tensor.size(), tensor.stride(), dtype=tensor.dtype)
    if isinstance(tensor, torch.nn.Parameter):
        empty = torch.nn.Parameter(empty, requires_grad=tensor.requires_grad)
    # The libraries leave marks on parameters, such as "already initialised" or "not to be decayed".
    vars(empty).update(vars(tensor))
    return empty
