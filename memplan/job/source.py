"""What a target gives: the callables of a training step, and where each came from."""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from memplan.job.loss_items import LossItems

if TYPE_CHECKING:
    import torch
    from torch.distributed.device_mesh import DeviceMesh


@dataclass(frozen=True, slots=True, kw_only=True)
class Depth:
    """A model of blocks that are alike, as far as its configuration tells."""

    blocks: int
    """Blocks in a stack; stacks of as many are changed together."""
    period: int
    """After how many blocks their kinds come again: 1 where all are of one kind."""
    at: "Callable[[int], ModelSource]"
    """The same target with so many blocks."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelSource:
    """A loaded target. Nothing has been built yet; every callable runs later, under fake tensors."""

    model: "Callable[[], torch.nn.Module]"
    """Builds the model (on CPU, in default dtype; memplan casts and places it)."""
    batch: Callable[[int, int | None], Any] | None = None
    """``(batch_size, seq_len)`` → a tensor, a dict (keywords) or a tuple (leading positional items); None: the target
    says nothing of its inputs, which are worked out."""
    loss: "Callable[[Any, Any], torch.Tensor] | None" = None
    """``(output, batch)`` → scalar; None takes ``output.loss`` or a scalar output."""
    loss_items: LossItems = ()
    """What ``loss`` reads of the batch."""
    optimizer: "Callable[[Iterable[torch.nn.Parameter]], torch.optim.Optimizer] | None" = None
    """``(parameters)`` → optimizer; None takes the one the options name."""
    train_step: "Callable[[torch.nn.Module, torch.optim.Optimizer, Any], Any] | None" = None
    """``(model, optimizer, batch)``: the user's own whole step, replaces forward, loss, backward and optimizer."""
    parallelize: "Callable[[torch.nn.Module, DeviceMesh], torch.nn.Module | None] | None" = None
    """``(model, mesh)``: shares the model among the ranks of ``--parallel`` in memplan's place, perhaps in place."""
    generate: "Callable[[torch.nn.Module, Any], Any] | None" = None
    """``(model, batch)``: one whole generation; None calls the ``generate`` of a transformers model."""
    generate_inputs: Mapping[str, Any] = field(default_factory=dict)
    """Extra keywords for a transformers model's ``generate``."""
    default_seq_len: int | None = None
    """Sequence length where none is given; None where the model has none."""
    arguments: Mapping[str, Any] = field(default_factory=dict)
    """Keywords that the model's constructor is called with, as typed: sizes that its inputs must fit."""
    depth: Depth | None = None
    """How deep the model is, where that is known; None where nobody knows how to build it with fewer blocks."""
    assumptions: tuple[str, ...] = ()
    """What was taken for granted when it was loaded, each a sentence."""
    provenance: Mapping[str, str] = field(default_factory=dict)
    """Field (``model``, ``batch``, ``loss``…) → ``file:line`` it came from."""
