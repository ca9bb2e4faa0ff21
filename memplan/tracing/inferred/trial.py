"""One forward pass of a model on fake inputs, to see how far it comes and which layers its inputs reach first."""

from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import nn
from torch.overrides import TorchFunctionMode

from memplan.errors import UsageError

LAYERS = (
    nn.Embedding, nn.EmbeddingBag, nn.Linear, nn.Bilinear, nn.Conv1d, nn.Conv2d, nn.Conv3d, nn.ConvTranspose1d,
    nn.ConvTranspose2d, nn.ConvTranspose3d, nn.RNNBase, nn.RNNCellBase, nn.MultiheadAttention, nn.LayerNorm,
    nn.BatchNorm1d, nn.BatchNorm2d, nn.BatchNorm3d, nn.GroupNorm,
)  # fmt: skip
"""Layers that tell by their sizes what they take."""
MOST_CALLS = 4_000
"""Calls of torch in a forward pass beyond which its sequence is cut shorter, where nobody gave its length: some eight
times as many ops stand in a training step. Chosen."""

_SOURCE = "_memplan_inputs"


class TooLongError(Exception):
    """The sequence does not fit a table of positions, or takes too many calls.

    The limit is the number of positions; None where it is the calls.
    """

    def __init__(self, what: str, limit: int | None = None) -> None:
        super().__init__(what)
        self.limit = limit


@dataclass(slots=True, kw_only=True)
class Attempted:
    """What became of one forward pass."""

    calls: int = 0
    """Calls of torch that worked."""
    reached: dict[str, nn.Module] = field(default_factory=dict)
    """Input → the first layer that it came to."""
    output: Any = None
    """What the model returned."""
    error: BaseException | None = None
    """Why it returned nothing."""


def trial(model: nn.Module, inputs: Mapping[str, torch.Tensor], *, most_calls: int) -> Attempted:
    """Call a model on fake tensors, and see; after so many calls of torch it is given up."""
    outcome = Attempted()
    for name, tensor in inputs.items():
        setattr(tensor, _SOURCE, frozenset((name,)))
    with torch.no_grad(), _watched(model, outcome), _Following(outcome, most_calls):
        try:
            outcome.output = model(**inputs)
        except (UsageError, KeyboardInterrupt):
            raise
        except BaseException as error:  # noqa: BLE001 - whatever a model says of a wrong input.
            outcome.error = error
    return outcome


class _Following(TorchFunctionMode):
    """Counts calls, and marks every result with the inputs that it was made of."""

    def __init__(self, outcome: Attempted, most_calls: int) -> None:
        super().__init__()
        self._outcome, self._most_calls = outcome, most_calls

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Call on, then mark."""
        kwargs = kwargs or {}
        result = func(*args, **kwargs)
        self._outcome.calls += 1
        if self._outcome.calls > self._most_calls:
            raise TooLongError(f"more than {self._most_calls} calls")
        sources = frozenset[str]().union(*(_sources(each) for each in _tensors((*args, *kwargs.values()))))
        if sources:
            for tensor in _tensors((result,)):
                setattr(tensor, _SOURCE, _sources(tensor) | sources)
        return result


@contextmanager
def _watched(model: nn.Module, outcome: Attempted) -> Iterator[None]:
    def called(layer: nn.Module, args: tuple[Any, ...]) -> None:
        for tensor in _tensors(args[:1]):
            sources = _sources(tensor)
            for name in sources if len(sources) == 1 else ():
                outcome.reached.setdefault(name, layer)
            if not isinstance(layer, nn.Embedding) or sources or not tensor.dim():
                continue
            if tensor.shape[-1] > layer.num_embeddings:
                raise TooLongError(f"{tensor.shape[-1]} positions of {layer.num_embeddings}", layer.num_embeddings)

    handles = [layer.register_forward_pre_hook(called) for layer in model.modules() if isinstance(layer, LAYERS)]
    try:
        yield
    finally:
        for handle in handles:
            handle.remove()


def _sources(tensor: torch.Tensor) -> frozenset[str]:
    found: frozenset[str] = vars(tensor).get(_SOURCE, frozenset())
    return found


def _tensors(values: Iterable[Any]) -> Iterator[torch.Tensor]:
    for value in values:
        if isinstance(value, torch.Tensor):
            yield value
        elif isinstance(value, list | tuple):
            yield from _tensors(value)
