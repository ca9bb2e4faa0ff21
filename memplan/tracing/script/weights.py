"""Weights on the net: a model keeps those that it was built with, which take as much memory."""

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from types import ModuleType, SimpleNamespace
from typing import Any
from unittest import mock

from memplan.seam.replace import Replacement, attribute, replaced

_LOAD = "torch.nn.Module.load_state_dict"


class NoWeights(dict[str, Any]):
    """A state that was never downloaded."""


@contextmanager
def weights_left_out(assume: Callable[[str], None]) -> Iterator[None]:
    """Let what ``torch.hub`` would download be loaded by doing nothing.

    Args:
        assume: Told whose weights were not read.
    """
    load = attribute(_LOAD)

    def download(url: str, *_: Any, **__: Any) -> NoWeights:
        assume(f"weights are not downloaded ({url.rpartition('/')[2]}): the model keeps those it was built with")
        return NoWeights()

    def load_state_dict(module: Any, state: Any, *args: Any, **kwargs: Any) -> Any:
        if isinstance(state, NoWeights):
            return SimpleNamespace(missing_keys=[], unexpected_keys=[])
        return load(module, state, *args, **kwargs)

    def names(*_: Any, **__: Any) -> list[str]:
        assume("torch.hub.list() names nothing: it would ask the net")
        return []

    table = (
        Replacement("torch.hub.load_state_dict_from_url", download),
        Replacement("torch.hub.list", names),
        Replacement(_LOAD, load_state_dict),
    )
    with replaced(table):
        yield


def timm_weights(module: ModuleType, stack: ExitStack, assume: Callable[[str], None]) -> None:
    """Let timm's pretrained models keep the weights that they were built with."""

    def load_pretrained(*_: Any, **__: Any) -> None:
        assume("weights are not downloaded (timm): the model keeps those it was built with")

    stack.enter_context(mock.patch.object(module, "load_pretrained", load_pretrained))
