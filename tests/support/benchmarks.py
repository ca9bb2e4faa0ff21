"""Modules of ``benchmarks``, which is a folder of programs and no package."""

import importlib.util
import sys
from pathlib import Path
from types import ModuleType

import pytest

BENCHMARKS = Path(__file__).parents[2] / "benchmarks"


def benchmark(name: str, folder: Path = BENCHMARKS) -> ModuleType:
    """Import a module of a folder by its path, since some are called like packages.

    Args:
        name: The module's, dotted within a package.
        folder: Where it lies; while it is imported, it finds its neighbours there.

    Returns:
        The module.
    """
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(str(folder))
        if "." in name:
            return importlib.import_module(name)
        spec = importlib.util.spec_from_file_location(f"benchmark_{name}", folder / f"{name}.py")
        assert spec is not None
        assert spec.loader is not None
        module = sys.modules[spec.name] = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
        return module
