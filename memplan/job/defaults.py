"""How a model is called on a batch, and which scalar is its loss, where the target does not say."""

import inspect
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypeGuard

from memplan.errors import EstimateError
from memplan.job.loss_items import LossItems, places

if TYPE_CHECKING:
    import torch

_LOSS_EXAMPLE = "define it in the target file:  def loss(output, batch): return output.float().mean()"


def caller(
    items: LossItems = (), tell: Callable[[Mapping[str, str], tuple[str, ...]], None] | None = None
) -> "Callable[[torch.nn.Module, Any], Any]":
    """How a model is called on a batch.

    A mapping is passed as keywords; a tuple or list as leading items, as many as ``forward`` takes positionally, so
    that labels may follow; anything else as the only argument. What the loss reads never reaches an optional parameter:
    ``forward(x, edge_weight=None)`` would take labels for weights.

    Args:
        items: What the target's own loss reads of the batch (``memplan.job.loss_items``).
        tell: Told, at each call with a tuple or list, which parameter got which item, and which optional ones got none
            because of the loss.

    Returns:
        ``(model, batch)`` → what the model returns; the model may be wrapped (DDP, ``torch.compile``).
    """

    def call(model: "torch.nn.Module", batch: object) -> Any:
        if isinstance(batch, Mapping):
            return model(**batch)
        if not isinstance(batch, tuple | list):
            return model(batch)
        named, held_back = _bound(model, batch, items)
        if tell is not None:
            tell({name: f"batch[{place}]" for place, name in enumerate(named)}, held_back)
        return model(*batch[: len(named)])

    return call


def _bound(
    model: "torch.nn.Module", batch: Sequence[object], items: LossItems
) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Names of the parameters that get the leading items, and of optional ones that get none because of the loss."""
    parameters, rest = _positional(model)
    names = [parameter.name for parameter in parameters][: len(batch)]
    if rest is not None:
        names += [f"{rest}[{place}]" for place in range(len(batch) - len(names))]
    needed = max(1, sum(parameter.default is inspect.Parameter.empty for parameter in parameters))
    read = [place for place in places(items, batch) if needed <= place < len(names)]
    end = min(read, default=len(names))
    return tuple(names[:end]), tuple(names[end:])


class NoLossError(EstimateError):
    """A model's output is no loss, and holds none."""


def first_loss(output: object, *, anywhere: bool = False) -> "torch.Tensor | None":
    """The loss that an output is or holds: ``loss``, itself, its first item.

    ``anywhere``: it may be the only scalar of a tuple, wherever it stands (``logits, loss``).
    """
    candidates: list[object] = [getattr(output, "loss", None), output]
    if isinstance(output, Mapping):
        candidates.insert(0, output.get("loss"))
    if isinstance(output, tuple | list) and output:
        candidates.append(output[0])
        scalars = [each for each in output if _is_scalar(each) and each.dim() == 0]
        candidates += scalars if anywhere and len(scalars) == 1 else []
    return next((candidate for candidate in candidates if _is_scalar(candidate)), None)


def default_loss(output: object, batch: object) -> "torch.Tensor":
    """The scalar to differentiate where the target defines no ``loss``.

    Args:
        output: What the model returned: an object or mapping with ``loss``, a scalar, or a tuple that starts with one.
        batch: What the model was called on; only named in the error.

    Returns:
        The loss, a tensor of one element.

    Raises:
        NoLossError: The output holds no such scalar.
    """
    loss = first_loss(output)
    if loss is not None:
        return loss
    raise NoLossError(f"the model returns {_describe(output)}, which is no loss", hint=_hint(output, batch))


def _positional(model: "torch.nn.Module") -> tuple[list[inspect.Parameter], str | None]:
    """The positional parameters of ``forward``, and the name of what takes any number beyond."""
    parameters = list(inspect.signature(model.forward).parameters.values())
    rest = next((each.name for each in parameters if each.kind is inspect.Parameter.VAR_POSITIONAL), None)
    # Wrappers (DDP, torch.compile) take anything and pass it on: the wrapped model knows.
    inner = None if rest is None else getattr(model, "module", None) or getattr(model, "_orig_mod", None)
    if inner is not None:
        return _positional(inner)
    positional = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
    return [parameter for parameter in parameters if parameter.kind in positional], rest


def _is_scalar(value: object) -> "TypeGuard[torch.Tensor]":
    import torch

    return isinstance(value, torch.Tensor) and value.numel() == 1 and value.is_floating_point()


def _describe(output: object) -> str:
    import torch

    if isinstance(output, torch.Tensor):
        return f"a tensor of shape {list(output.shape)} ({str(output.dtype).removeprefix('torch.')})"
    return f"a {type(output).__name__}"


def _hint(output: object, batch: object) -> str:
    can_compute_loss = hasattr(output, "loss") or (isinstance(output, Mapping) and "loss" in output)
    if can_compute_loss and isinstance(batch, Mapping) and "labels" not in batch:
        return "its `loss` is empty: let batch() return labels too, or " + _LOSS_EXAMPLE
    return _LOSS_EXAMPLE
