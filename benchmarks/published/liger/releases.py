"""Liger-Kernel's source releases: which of them a row is run with, and importing from it."""

import ast
import importlib
import importlib.util
import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from types import ModuleType

from published.liger.rows import Row

SCRIPTS = {
    "fused_linear_cpo_loss": "cpo_loss",
    "fused_linear_grpo_loss_sequence": "grpo_loss",
    "fused_linear_grpo_loss_token": "grpo_loss",
    "fused_linear_orpo_loss": "orpo_loss",
    "fused_linear_simpo_loss": "simpo_loss",
    "tiled_geglu": "tiled_mlp",
    "tiled_swiglu": "tiled_mlp",
}
"""Kernel → name of its script after ``benchmark_``, where they differ."""

_OWN = ("liger_kernel", "utils", "benchmark_", "test")
"""Top-level modules of a release begin so."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Release:
    """The unpacked releases of a row: two, where the row is older than the first release with scripts."""

    library: Path
    """``…/liger_kernel-0.2.1``: the kernels."""
    scripts: Path
    """``…/liger_kernel-0.5.4``: the benchmark."""
    script: str
    """Module name of the script."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Program:
    """A benchmark as imported."""

    script: ModuleType
    """``benchmark_cross_entropy``."""
    utils: ModuleType
    """What all scripts of a release share, ``_test_memory`` among it."""


def release_of(row: Row) -> Release | None:
    """The releases to run a row with: from its own version on, the first with its script, and with what that imports.

    Scripts and kernels that were new when they were measured carry the number of the release before them. A script that
    does not name all of the row's options is another.
    """
    script = f"benchmark_{SCRIPTS.get(row.kernel, row.kernel)}"
    scripts = _first(row.version, lambda folder: _knows(_script(folder, script), frozenset(row.config)))
    if scripts is None:
        return None
    imports = _imports(_script(scripts, script))
    # A release's tests, where some scripts have their modules from, go with its own library.
    needs_own = any(module.startswith("test.") for module, _ in imports)
    library = scripts if needs_own else _first(row.version, lambda folder: all(_has(folder, *each) for each in imports))
    return None if library is None else Release(library=library, scripts=scripts, script=script)


@contextmanager
def imported(release: Release) -> Iterator[Program]:
    """A script and its helpers, imported from their release; modules of other releases are forgotten first."""
    folders = release.library / "src", release.scripts / "benchmark" / "scripts", release.scripts
    if not all(_comes_from(name, folder) for name, folder in zip(("liger_kernel", "utils"), folders, strict=False)):
        for name in [name for name in sys.modules if name.partition(".")[0].startswith(_OWN)]:
            del sys.modules[name]
        importlib.invalidate_caches()
    former = list(sys.path)
    sys.path[:0] = map(str, folders)
    try:
        _stand_in(release)
        yield Program(script=importlib.import_module(release.script), utils=importlib.import_module("utils"))
    finally:
        sys.path[:] = former


def _comes_from(name: str, folder: Path) -> bool:
    file = getattr(sys.modules.get(name), "__file__", None)
    return file is not None and Path(file).is_relative_to(folder)


def _stand_in(release: Release) -> None:
    """Put modules in place of two: one patches every model of transformers, of its own day; one is missing in 0.2.1."""
    package = release.library / "src" / "liger_kernel"
    models = ModuleType("liger_kernel.transformers")
    models.__path__ = [str(package / "transformers")]
    sys.modules.setdefault(models.__name__, models)
    if not (package / "utils.py").exists():
        _import_file("liger_kernel.utils", release.scripts / "src" / "liger_kernel" / "utils.py")


def _import_file(name: str, file: Path) -> None:
    spec = importlib.util.spec_from_file_location(name, file)
    if name not in sys.modules and spec is not None and spec.loader is not None:
        sys.modules[name] = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(sys.modules[name])


def _first(version: str, fits: Callable[[Path], bool]) -> Path | None:
    wanted = tuple(map(int, version.split(".")))
    return next((folder for folder in _folders() if _version(folder) >= wanted and fits(folder)), None)


@cache
def _folders() -> tuple[Path, ...]:
    """Unpacked releases at hand, oldest first."""
    folder = os.environ.get("MEMPLAN_LIGER")
    found = Path(folder).glob("liger_kernel-*/") if folder else ()
    return tuple(sorted((each for each in found if (each / "src").is_dir()), key=_version))


def _version(folder: Path) -> tuple[int, ...]:
    return tuple(map(int, folder.name.partition("-")[2].split(".")))


def _script(folder: Path, script: str) -> Path:
    return folder / "benchmark" / "scripts" / f"{script}.py"


@cache
def _knows(script: Path, options: frozenset[str]) -> bool:
    return script.exists() and all(f'"{option}"' in script.read_text() for option in options)


@cache
def _imports(script: Path) -> frozenset[tuple[str, str]]:
    """What a script imports, at any place in it: modules and names in them."""
    statements = [node for node in ast.walk(ast.parse(script.read_text())) if isinstance(node, ast.ImportFrom)]
    return frozenset((node.module, alias.name) for node in statements if node.module for alias in node.names)


@cache
def _has(folder: Path, module: str, name: str) -> bool:
    """Does a release's library have the module with the name in it? Other packages are not asked for."""
    if module == "liger_kernel.utils" or not module.startswith("liger_kernel."):
        return True
    file = folder / "src" / Path(*module.split("."))
    files = file.with_suffix(".py"), file / "__init__.py"
    return any(each.exists() and name in each.read_text() for each in files)
