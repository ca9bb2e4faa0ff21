"""Stand-ins for what a program needs and this machine does not have: data sets, a process group, files on the net."""

import importlib.abc
import importlib.machinery
import importlib.metadata
import importlib.util
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from email.message import Message
from pathlib import Path
from types import ModuleType
from typing import Any
from unittest import mock

from memplan.job.usercode import is_user_file
from memplan.tracing.script import (
    datasets,
    downloads,
    hub,
    hub_datasets,
    hub_pipelines,
    hub_uploads,
    loggers,
    mpi,
    sharded_checkpoints,
    tiktoken,
    weights,
)

Assume = Callable[[str], None]
Maker = Callable[[ModuleType, ExitStack, Assume], None]
"""Replaces parts of a module until a stack of contexts ends, and may tell what stands in for what."""
_MAKERS: Mapping[str, Maker] = {
    "accelerate.utils.dataclasses": hub.older_accelerate,
    "timm.models._builder": weights.timm_weights,
    "torchvision.datasets": datasets.torchvision_datasets,
    "torchvision.utils": datasets.no_pictures,
    "diffusers.configuration_utils": hub_pipelines.configurations,
    "diffusers.models.modeling_utils": hub_pipelines.models,
    "fsspec.implementations.http": downloads.of_fsspec,
    "requests": downloads.of_requests,
    "datasets": hub_datasets.installed_datasets,
    "huggingface_hub": hub_uploads.no_uploads,
    "tiktoken": tiktoken.installed,
    "torch.distributed.checkpoint": sharded_checkpoints.nowhere,
    "safetensors.torch": hub.safetensors_files,
    "transformers": hub.transformers_hub,
    "transformers.trainer": hub.older_trainer,
    "urllib.request": downloads.of_urllib,
}
"""Module → what replaces parts of it once it has been imported."""


@contextmanager
def absent(assume: Assume, further: Mapping[str, Maker]) -> Iterator[None]:
    """Replace parts of libraries while the context lasts, each when it is imported.

    Args:
        assume: Told what stands in for what.
        further: Module → what else is replaced.
    """
    with ExitStack() as stack:
        makers = {**_MAKERS, **further}
        watcher = _Watcher(stack, assume, makers)
        for name, make in makers.items():
            if name in sys.modules and not _is_of_program(sys.modules[name].__spec__):
                make(sys.modules[name], stack, assume)
        of_project = _OfProject(assume)
        sys.meta_path.insert(0, watcher)
        # Behind what is installed, and before what stands for packages that nobody finds.
        sys.meta_path.insert(sys.meta_path.index(importlib.machinery.PathFinder) + 1, of_project)
        stack.callback(sys.meta_path.remove, watcher)
        stack.callback(sys.meta_path.remove, of_project)
        stack.callback(_forget_loggers, frozenset(sys.modules))
        stack.enter_context(mock.patch.object(importlib.metadata, "version", _version(importlib.metadata.version)))
        stack.enter_context(mock.patch.object(importlib.metadata, "metadata", _metadata(importlib.metadata.metadata)))
        yield


def _forget_loggers(before: frozenset[str]) -> None:
    """Let what is imported later find the real modules."""
    for name in [name for name in sys.modules if name not in before and _is_stand_in(name)]:
        del sys.modules[name]


def _is_stand_in(name: str) -> bool:
    kinds = loggers.Inert | hub_datasets.DatasetsModule | tiktoken.TiktokenModule | mpi.MpiModule
    return isinstance(sys.modules[name], kinds)


def _version(real: Callable[[str], str]) -> Callable[[str], str]:
    """What a program asks of an installed package's version, where a stand-in has none."""

    def version(name: str) -> str:
        stand_in = sys.modules.get(name)
        if isinstance(stand_in, hub_datasets.DatasetsModule):
            return hub_datasets.VERSION
        return _NO_RELEASE if name == "tensorboard" else real(name)

    return version


_NO_RELEASE = "0"
"""What TensorBoard's stand-in calls itself."""


def _metadata(real: Callable[[str], Any]) -> Callable[[str], Any]:
    """What accelerate asks to learn whether TensorBoard, which programs take unless told otherwise, is there: it is."""

    def metadata(name: str) -> Any:
        return Message() if name == "tensorboard" else real(name)

    return metadata


def _is_of_program(spec: importlib.machinery.ModuleSpec | None) -> bool:
    """Is it a module of the program's own (``datasets.py``), which only shares its name with a library?

    It lies where the program does, or further up; a library that somebody develops lies elsewhere.
    """
    file = Path((spec and spec.origin) or "")
    if spec is None or "." in spec.name or not is_user_file(str(file)):
        return False
    folder = file.parent.parent if file.name == "__init__.py" else file.parent
    return Path(sys.path[0]).resolve().is_relative_to(folder.resolve())


class _OfProject(importlib.abc.MetaPathFinder):
    """Finds, behind what is installed, the packages of the program's own project: who runs it installs them."""

    def __init__(self, assume: Assume) -> None:
        self._assume = assume

    def find_spec(self, name: str, path: Sequence[str] | None, _: ModuleType | None = None) -> Any:
        """The spec of a package beside ``setup.py`` or ``pyproject.toml``; a folder of data is none."""
        folder = Path(sys.path[0]).resolve()
        root = next(
            (each for each in (folder, *folder.parents) if any((each / file).is_file() for file in _SETUP)), None
        )
        if path is not None or root is None:
            return None
        spec = importlib.machinery.PathFinder.find_spec(name, [str(root), str(root / "src")])
        if spec is None or Path(spec.origin or "").name != "__init__.py":
            return None
        self._assume(f"the package {name} is taken from the program's project, as if it were installed")
        return spec


_SETUP = ("setup.py", "pyproject.toml", "setup.cfg")
"""Files by which ``pip install`` knows a project."""


class _Watcher(importlib.abc.MetaPathFinder):
    """Finds modules as everybody does, and has a say after they ran."""

    def __init__(self, stack: ExitStack, assume: Assume, makers: Mapping[str, Maker]) -> None:
        self._stack, self._assume, self._makers = stack, assume, makers
        self._busy = False

    def _others(self, name: str) -> Any:
        """The spec that others find."""
        self._busy = True
        try:
            loaded = name in sys.modules and name not in self._makers
            return None if loaded else importlib.util.find_spec(name)
        finally:
            self._busy = False

    def _played(self, name: str) -> Any:
        """A stand-in of what is not installed."""
        top = name.partition(".")[0]
        if top in ("datasets", "evaluate"):
            return self._of_hub(name)
        if name == "tiktoken" and self._others(name) is None:
            return tiktoken.spec_of(name, self._assume)
        return mpi.spec_of(name, self._assume) if top == "mpi4py" and self._is_missing(top) else None

    def _is_missing(self, top: str) -> bool:
        """Is a package not installed?"""
        return _is_stand_in(top) if top in sys.modules else self._others(top) is None

    def _of_hub(self, name: str) -> Any:
        """A stand-in of a package of the hub's: of what is not there, and of metrics, which it downloads."""
        top = name.partition(".")[0]
        there = self._others(top)
        if there is not None and top == "evaluate" and not is_user_file(there.origin or ""):
            return loggers.inert(name)
        if there is not None or (top in sys.modules and not _is_stand_in(top)):
            return None
        return hub_datasets.spec_of(name, self._assume) if top == "datasets" else loggers.inert(name)

    def find_spec(self, name: str, _: Sequence[str] | None, __: ModuleType | None = None) -> Any:
        """The spec that others find, with a loader that calls the maker afterwards."""
        if (inert := loggers.spec_of(name)) is not None:
            self._assume(f"{name} is told nothing")
            return inert
        if self._busy:
            return None
        if (played := self._played(name)) is not None:
            return played
        spec = self._others(name) if name in self._makers else None
        if spec is None or spec.loader is None or _is_of_program(spec):
            return None
        loader, run = spec.loader, spec.loader.exec_module

        def exec_module(module: ModuleType) -> None:
            vars(loader).pop("exec_module", None)
            run(module)
            # Some put another module in their own place while they run.
            self._makers[name](sys.modules.get(name, module), self._stack, self._assume)

        loader.exec_module = exec_module
        return spec
