"""A loss where the target has none: by what the model returns, or by name."""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn
from torch.nn import functional

from memplan.errors import UsageError
from memplan.job.defaults import first_loss
from memplan.job.inputs import batch_of
from memplan.job.spec import InputSpec

_TARGET = "target"
OWN = "the model's own"
"""Name of a loss that stands in the output, though not first."""
_LEAST_PIXEL_DIMS = 4


@dataclass(frozen=True, slots=True)
class Labelled:
    """A batch of a target's, with what the output is compared with."""

    inputs: Any
    """What the model is called on."""
    target: torch.Tensor
    """Labels."""


def unlabelled(call: Callable[[nn.Module, Any], Any]) -> Callable[[nn.Module, Any], Any]:
    """Let a model be called on a batch without its target."""
    return lambda model, batch: call(model, batch.inputs if isinstance(batch, Labelled) else batch)


@dataclass(frozen=True, slots=True, kw_only=True)
class Ran:
    """A forward pass that ended well."""

    output: Any
    """What the model returned."""
    inputs: list[torch.Tensor]
    """What it was called on."""
    length: int | None
    """Tokens of a sample."""
    has_labels: bool
    """Are there labels among the inputs?"""


@dataclass(frozen=True, slots=True, kw_only=True)
class FoundLoss:
    """A loss that fits an output."""

    name: str
    """``cross-entropy``, ``mse``, ``sum``, or ``OWN``."""
    target: InputSpec | None = None
    """What the output is compared with; None where it is not."""
    class_dim: int = -1
    """Dimension of the classes."""

    def __call__(self, output: Any, batch: Any) -> torch.Tensor:
        """The scalar to differentiate."""
        if self.name == OWN:
            return first_loss(output, anywhere=True)  # type: ignore[return-value]
        scores = list(floats(output))
        if self.name == "sum":
            total = torch.stack([score.float().sum() for score in scores]) if len(scores) > 1 else scores[0].float()
            return total.sum()
        target = batch.target
        if self.name == "mse":
            return functional.mse_loss(scores[0], target)
        logits = scores[0]
        if self.class_dim == -1:
            return functional.cross_entropy(logits.reshape(-1, logits.shape[-1]), target.reshape(-1))
        return functional.cross_entropy(logits, target)

    def labelled(self, inputs: Any, batch_size: int, seq_len: int | None) -> Any:
        """A batch with its target beside it."""
        if self.target is None:
            return inputs
        return Labelled(inputs, batch_of((self.target,))(batch_size, seq_len)[_TARGET])


def find_loss(name: str | None, model: nn.Module, ran: Ran, batch: int) -> FoundLoss | None:
    """The loss of a name, or one that fits the output; None where the output is or holds its loss.

    The trial was of so many samples.

    Raises:
        UsageError: The output holds nothing that could be differentiated, or has no classes.
    """
    output, inputs, length = ran.output, ran.inputs, ran.length
    if name is None and first_loss(output) is not None:
        return None
    if name is None and ran.has_labels and first_loss(output, anywhere=True) is not None:
        return FoundLoss(name=OWN)
    scores = next(floats(output), None)
    if scores is None:
        hint = "define loss(output, batch) in the target file, or give --loss module:function"
        raise UsageError("the model returns no floating tensor that a loss could be made of", hint=hint)
    shape = tuple(scores.shape)
    is_like_input = any(tuple(each.shape) == shape and each.is_floating_point() for each in inputs) and len(shape) > 1
    reads_tokens = any(not each.is_floating_point() for each in inputs)
    chosen = name or ("mse" if is_like_input else "cross-entropy" if _are_logits(model, shape, reads_tokens) else "sum")
    if chosen == "sum":
        return FoundLoss(name="sum")
    if chosen == "mse":
        return FoundLoss(name="mse", target=_target("float32", _symbols(shape, batch, length)))
    if len(shape) < 2:
        raise UsageError(f"--loss cross-entropy wants classes, and the model returns a tensor of shape {list(shape)}")
    of_pixels = len(shape) >= _LEAST_PIXEL_DIMS
    labels = (shape[0], *shape[2:]) if of_pixels else shape[:-1]
    return FoundLoss(name="cross-entropy", class_dim=1 if of_pixels else -1,
                     target=_target("int64", _symbols(labels, batch, length)))  # fmt: skip


def floats(output: Any) -> Iterator[torch.Tensor]:
    """Floating tensors of an output, logits before others."""
    if isinstance(output, torch.Tensor):
        if output.is_floating_point() or output.is_complex():
            yield output
        return
    parts = output if isinstance(output, list | tuple) else ()
    if isinstance(output, Mapping) or hasattr(output, "__dict__"):
        named = dict(output) if isinstance(output, Mapping) else vars(output)
        parts = [*(named[key] for key in ("logits", "out", "sample") if key in named), *named.values()]
    for part in parts:
        if isinstance(part, torch.Tensor | list | tuple):
            yield from floats(part)


def _are_logits(model: nn.Module, shape: tuple[int, ...], reads_tokens: bool) -> bool:
    if len(shape) >= _LEAST_PIXEL_DIMS:
        return shape[1] > 1
    if len(shape) < 2 or shape[-1] < 2:
        return False
    if len(shape) == 2 and not reads_tokens:
        return True
    vocabularies = {layer.num_embeddings for layer in model.modules() if isinstance(layer, nn.Embedding)}
    heads = {layer.out_features for layer in model.modules() if isinstance(layer, nn.Linear)}
    return shape[-1] in vocabularies or (len(shape) == 2 and shape[-1] in heads)


def _symbols(shape: tuple[int, ...], batch: int, length: int | None) -> tuple[Any, ...]:
    """Sizes in terms of samples and tokens."""
    first, *rest = shape
    dims: list[Any] = ["B"]
    if length and first == batch * length:
        dims = ["B", "S"]
    elif length and first == length and rest[:1] == [batch]:
        dims, rest = ["S", "B"], rest[1:]
    return (*dims, *("S" if size == length else size for size in rest))


def _target(dtype: str, dims: tuple[Any, ...]) -> InputSpec:
    return InputSpec(name=_TARGET, dtype=dtype, dims=dims)
