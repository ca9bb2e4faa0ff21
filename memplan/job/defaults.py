"""How a model is called on a batch, and which scalar is its loss, where the target does not say."""

import inspect
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, TypeGuard

from memplan.errors import EstimateError

if TYPE_CHECKING:
    import torch

_LOSS_EXAMPLE = "define it in the target file:  def loss(output, batch): return output.float().mean()"


def call_model(model: "torch.nn.Module", batch: object) -> Any:
    """Call the model on a batch.

    Args:
        model: The model, perhaps wrapped (DDP, ``torch.compile``).
        batch: A mapping is passed as keywords; a tuple or list as as many leading items as ``forward`` takes
            positionally, so that labels may follow; anything else as the only argument.

    Returns:
        What the model returns.
    """
    if isinstance(batch, Mapping):
        return model(**batch)
    if isinstance(batch, tuple | list):
        return model(*batch[: _positional_count(model)])
    return model(batch)


def default_loss(output: object, batch: object) -> "torch.Tensor":
    """The scalar to differentiate where the target defines no ``loss``.

    Args:
        output: What the model returned: an object or mapping with ``loss``, a scalar, or a tuple that starts with one.
        batch: What the model was called on; only named in the error.

    Returns:
        The loss, a tensor of one element.

    Raises:
        EstimateError: The output holds no such scalar.
    """
    candidates: list[object] = [getattr(output, "loss", None), output]
    if isinstance(output, Mapping):
        candidates.insert(0, output.get("loss"))
    if isinstance(output, tuple | list) and output:
        candidates.append(output[0])
    for candidate in candidates:
        if _is_scalar(candidate):
            return candidate
    raise EstimateError(f"the model returns {_describe(output)}, which is no loss", hint=_hint(output, batch))


def _positional_count(model: "torch.nn.Module") -> int | None:
    """How many positional arguments ``forward`` takes; None takes any number."""
    kinds = [parameter.kind for parameter in inspect.signature(model.forward).parameters.values()]
    if inspect.Parameter.VAR_POSITIONAL in kinds:
        # Wrappers (DDP, torch.compile) take anything and pass it on: the wrapped model knows.
        inner = getattr(model, "module", None) or getattr(model, "_orig_mod", None)
        return None if inner is None else _positional_count(inner)
    positional = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
    return sum(kind in positional for kind in kinds)


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
