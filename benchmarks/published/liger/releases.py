"""Liger-Kernel's source releases: which of them a row is run with, and importing from it."""

import ast
import importlib
import importlib.util
import os
import sys
from collections.abc import Iterable, Iterator
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

DAYS = {
    "0.2.1": "2024-08-29", "0.3.0": "2024-09-13", "0.3.1": "2024-10-01", "0.4.0": "2024-11-05", "0.4.1": "2024-11-12",
    "0.4.2": "2024-11-17", "0.5.0": "2024-12-10", "0.5.4": "2025-02-24", "0.5.5": "2025-03-14", "0.5.6": "2025-04-02",
    "0.5.8": "2025-04-12", "0.5.9": "2025-05-04", "0.5.10": "2025-05-22", "0.6.0": "2025-07-09",
    "0.6.1": "2025-07-28", "0.6.2": "2025-08-22", "0.6.3": "2025-10-27", "0.6.4": "2025-11-21",
    "0.7.0": "2026-02-12", "0.8.0": "2026-04-30", "0.8.1": "2026-07-23", "0.8.2": "2026-08-18",
    "0.8.3": "2026-09-16", "0.8.4": "2026-09-30", "0.8.5": "2026-10-21",
}  # fmt: skip
"""Release → the day its source archive was made, by the times of the files in it."""

_OWN = ("liger_kernel", "utils", "benchmark_", "test")
"""Top-level modules of a release begin so."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Release:
    """The unpacked releases of a row: two, where the row is older than the first release with scripts."""

    library: Path
    """``…/liger_kernel-0.3.0``: the kernels."""
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
    """The releases to run a row with: from its day on, the first with its script, and the first with what that imports.

    Rows come with the change that they show, and are measured on the tree with it, which still carries the number of
    the release before: the layer norms of 2025-07-17 (0.6.0) with pull request 815 of that day, ``tvd``'s of 2026-03-03
    (0.7.0) with 1127. From 0.5.4 on releases hold the table too; each of its later rows runs with the first that has
    it. A script that does not name all of the row's options is another; where all later ones are, the one before was
    rewritten since.
    """
    script = f"benchmark_{SCRIPTS.get(row.kernel, row.kernel)}"
    options = frozenset((row.x_name, *row.config))
    with_script = [folder for folder in _folders() if _knows(_script(folder, script), options)]
    scripts = _first(row.day, with_script) or next(reversed(with_script), None)
    if scripts is None:
        return None
    imports = _imports(_script(scripts, script))
    # A release's tests, where some scripts have their modules from, go with its own library.
    needs_own = any(module.startswith("test.") for module, _ in imports)
    with_imports = [folder for folder in _folders() if all(_has(folder, *each) for each in imports)]
    library = scripts if needs_own else _first(row.day, with_imports)
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
    """Put modules in place of two: one patches every model of transformers of its day; one is missing before 0.5.0."""
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


def _first(day: str, folders: Iterable[Path]) -> Path | None:
    return next((folder for folder in folders if DAYS[_version(folder)] >= day), None)


@cache
def _folders() -> tuple[Path, ...]:
    """Unpacked releases at hand, oldest first; of others than those in ``DAYS`` it is not known when they were made."""
    folder = os.environ.get("MEMPLAN_LIGER")
    found = Path(folder).glob("liger_kernel-*/") if folder else ()
    known = (each for each in found if (each / "src").is_dir() and _version(each) in DAYS)
    return tuple(sorted(known, key=lambda each: DAYS[_version(each)]))


def _version(folder: Path) -> str:
    return folder.name.partition("-")[2]


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
