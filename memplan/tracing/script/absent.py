"""Stand-ins for what a program needs and this machine does not have: data sets, a process group, files on the net."""

import importlib.abc
import importlib.util
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from types import ModuleType
from typing import Any

from memplan.tracing.script import datasets, loggers

Assume = Callable[[str], None]
_MAKERS: dict[str, Callable[[ModuleType, ExitStack, Assume], None]] = {
    "torchvision.datasets": datasets.torchvision_datasets,
    "torchvision.utils": datasets.no_pictures,
}
"""Module → what replaces parts of it once it has been imported."""


@contextmanager
def absent(assume: Assume) -> Iterator[None]:
    """Replace parts of libraries while the context lasts, each when it is imported.

    Args:
        assume: Told what stands in for what.
    """
    with ExitStack() as stack:
        watcher = _Watcher(stack, assume)
        for name, make in _MAKERS.items():
            if name in sys.modules:
                make(sys.modules[name], stack, assume)
        sys.meta_path.insert(0, watcher)
        stack.callback(sys.meta_path.remove, watcher)
        stack.callback(_forget_loggers, frozenset(sys.modules))
        yield


def _forget_loggers(before: frozenset[str]) -> None:
    """Let what is imported later find the real modules."""
    for name in [name for name in sys.modules if name not in before and loggers.spec_of(name) is not None]:
        del sys.modules[name]


class _Watcher(importlib.abc.MetaPathFinder):
    """Finds modules as everybody does, and has a say after they ran."""

    def __init__(self, stack: ExitStack, assume: Assume) -> None:
        self._stack, self._assume = stack, assume
        self._busy = False

    def find_spec(self, name: str, _: Sequence[str] | None, __: ModuleType | None = None) -> Any:
        """The spec that others find, with a loader that calls the maker afterwards."""
        if (inert := loggers.spec_of(name)) is not None:
            self._assume(f"{name} is told nothing")
            return inert
        if name not in _MAKERS or self._busy:
            return None
        self._busy = True
        try:
            spec = importlib.util.find_spec(name)
        finally:
            self._busy = False
        if spec is None or spec.loader is None:
            return None
        loader, run = spec.loader, spec.loader.exec_module

        def exec_module(module: ModuleType) -> None:
            vars(loader).pop("exec_module", None)
            run(module)
            _MAKERS[name](module, self._stack, self._assume)

        loader.exec_module = exec_module  # type: ignore[method-assign]
        return spec
