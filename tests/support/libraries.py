"""Libraries that the tests of a module need, and that are imported when the first of them runs.

Each worker collects every module but runs the tests of half of them: peft alone brings a compiler along, two seconds of
processor time. Whether a library is installed shows without importing it.
"""

import importlib.util
import warnings
from importlib.metadata import version
from typing import Any

import pytest
from packaging.version import Version


class Library:
    """A module by its name; the fixture ``libraries`` imports it before the tests of whoever asked for it.

    Args:
        name: Of the module.
    """

    def __init__(self, name: str) -> None:
        self._name = name
        self._module: Any = None

    def load(self) -> None:
        """Import it, where a release of its package may lack it."""
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            self._module = pytest.importorskip(self._name)

    def __getattr__(self, attribute: str) -> Any:
        if self._module is None:  # pytest and its plugins ask whatever they collect whether it is a test.
            raise AttributeError(f"{self._name} is not imported yet")
        return getattr(self._module, attribute)


def library(name: str, minversion: str = "0") -> Any:
    """Return a module to be imported later; whoever asks is skipped where its package is missing or too old.

    Args:
        name: Of the module.
        minversion: Of its package.
    """
    package = name.partition(".")[0]
    if importlib.util.find_spec(package) is None or Version(version(package)) < Version(minversion):
        pytest.skip(f"needs {package} {minversion.removeprefix('0')}".rstrip(), allow_module_level=True)
    return Library(name)
