"""Take effect when user code imports a package, and let the import itself run as if there were no trace."""

import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec, PathFinder
from types import ModuleType

from memplan.seam.modes import DisableTorchFunction, disable_current_modes
from memplan.seam.replace import Replacement, replaced


@contextmanager
def when_imported(
    name: str, then: Callable[[ModuleType], None], around: Callable[[], AbstractContextManager[None]]
) -> Iterator[None]:
    """Call back once a module has been imported: at once if it has been, else when it is.

    Args:
        name: Its full name; a submodule is found within its package.
        then: Takes the module.
        around: The context in which the module's own code runs when it is imported.

    Yields:
        Nothing.
    """
    if name in sys.modules:
        then(sys.modules[name])
        yield
        return
    finder = _Finder(name, then, around)
    sys.meta_path.insert(0, finder)
    try:
        yield
    finally:
        sys.meta_path.remove(finder)


class _Finder(MetaPathFinder):
    def __init__(
        self, name: str, then: Callable[[ModuleType], None], around: Callable[[], AbstractContextManager[None]]
    ) -> None:
        self._name, self._then, self._around = name, then, around

    def find_spec(
        self, fullname: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        """The module's own spec, executed in the context and followed by the call."""
        spec = PathFinder.find_spec(fullname, path, target) if fullname == self._name else None
        if spec is None or spec.loader is None:
            return None
        execute = spec.loader.exec_module

        def exec_module(module: ModuleType) -> None:
            with self._around():
                execute(module)
            self._then(module)

        # On the one loader object; another finder or class in its place would stay visible in ``module.__loader__``.
        vars(spec.loader)["exec_module"] = exec_module
        return spec


@contextmanager
def outside_trace() -> Iterator[None]:
    """Run what an import runs on real tensors: a module keeps the tensors that it makes, and outlives the trace."""
    with ExitStack() as stack:
        stack.enter_context(disable_current_modes())
        stack.enter_context(DisableTorchFunction())
        # A library asks whether there is a GPU to load what runs on it; a trace has no use for that.
        stack.enter_context(replaced((Replacement("torch.cuda.is_available", lambda: False),)))
        yield
