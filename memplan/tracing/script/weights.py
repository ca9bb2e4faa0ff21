"""Weights that are not there: a model keeps those that it was built with, which take as much memory."""

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from types import ModuleType, SimpleNamespace
from typing import Any, NoReturn, Self
from unittest import mock

import torch

from memplan.seam.replace import Replacement, attribute, replaced

_LOAD = "torch.nn.Module.load_state_dict"


class NoWeights(dict[str, Any]):
    """A state of a file that is not there: whatever it is asked for is such a state, too.

    Only a module can load it. Whoever takes it for anything else is told that there is no such file.

    Args:
        error: What the program would have seen.
        device: Where its tensors would lie; None: nobody asks.
    """

    def __init__(self, error: OSError, device: torch.device | None = None) -> None:
        super().__init__()
        self._error, self._device = error, device
        self._held: list[torch.Tensor] = []

    def loaded_by(self, module: torch.nn.Module) -> None:
        """It has what the module has, and lives as long as the program holds it."""
        if self._device is not None and not self._held:
            self._held += (torch.empty_like(each, device=self._device) for each in module.state_dict().values())

    def __getitem__(self, key: str) -> Self:
        if not isinstance(key, str):
            raise self._error
        return self

    def get(self, key: str, default: Any = None) -> Any:
        """Return the same state, or the default: that is what a program goes on with where it was given one."""
        return self[key] if default is None else default

    pop = setdefault = get

    def copy(self) -> Self:
        """Return the same state."""
        return self

    def __delitem__(self, _: str) -> None:
        """Parts that are not loaded take nothing."""

    def __bool__(self) -> bool:
        return True

    def _is_not_there(self, *_: Any) -> NoReturn:
        raise self._error

    __iter__ = __len__ = __call__ = __index__ = __int__ = __float__ = _is_not_there
    __add__ = __radd__ = __sub__ = __mul__ = __lt__ = __le__ = __gt__ = __ge__ = _is_not_there

    def __getattr__(self, name: str) -> NoReturn:
        if name.startswith("__"):  # What Python itself looks for.
            raise AttributeError(name)
        raise self._error


@contextmanager
def weights_left_out(assume: Callable[[str], None]) -> Iterator[None]:
    """Let what ``torch.hub`` would download, or lies in a file that is not there, be loaded by doing nothing.

    Args:
        assume: Told whose weights were not read.
    """
    load, load_file = attribute(_LOAD), attribute("torch.load")
    missing: list[str] = []

    def download(url: str, *_: Any, **__: Any) -> NoWeights:
        name = url.rpartition("/")[2]
        missing.append(f"weights are not downloaded ({name}): the model keeps those it was built with")
        assume(missing[-1])
        return NoWeights(FileNotFoundError(2, "the net is not there", name))

    def load_state_dict(module: Any, state: Any, *args: Any, **kwargs: Any) -> Any:
        # What a program picks out of such a state is empty.
        if isinstance(state, NoWeights) or (missing and not state):
            assume(missing[-1])
            if isinstance(state, NoWeights):
                state.loaded_by(module)
            return SimpleNamespace(missing_keys=[], unexpected_keys=[])
        return load(module, state, *args, **kwargs)

    def loaded(f: Any, map_location: Any = None, *args: Any, **kwargs: Any) -> Any:
        try:
            return load_file(f, map_location, *args, **kwargs)
        except FileNotFoundError as error:
            missing.append(f"{f} is not there: the model keeps the weights that it was built with")
            return NoWeights(error, _place(map_location))

    def names(*_: Any, **__: Any) -> list[str]:
        assume("torch.hub.list() names nothing: it would ask the net")
        return []

    table = (
        Replacement("torch.hub.load_state_dict_from_url", download),
        Replacement("torch.hub.list", names),
        Replacement("torch.load", loaded),
        Replacement(_LOAD, load_state_dict),
    )
    with replaced(table):
        yield


def _place(map_location: Any) -> torch.device:
    """Where tensors come to lie that were saved on the GPU, if there is one; a function mostly keeps the host's."""
    if map_location is None or isinstance(map_location, dict):
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    return torch.device("cpu" if callable(map_location) else map_location)


def timm_weights(module: ModuleType, stack: ExitStack, assume: Callable[[str], None]) -> None:
    """Let timm's pretrained models keep the weights that they were built with."""

    def load_pretrained(*_: Any, **__: Any) -> None:
        assume("weights are not downloaded (timm): the model keeps those it was built with")

    stack.enter_context(mock.patch.object(module, "load_pretrained", load_pretrained))
