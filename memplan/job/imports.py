"""Imports of a target's code: a file under its own name or as a module of its package, a module by its name."""

import ast
import importlib
import importlib.util
import sys
import traceback
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from importlib.machinery import SourceFileLoader
from pathlib import Path
from types import ModuleType
from typing import Any

from memplan.errors import EstimateError, UsageError
from memplan.files.read import read_bytes
from memplan.files.syntax import parse_source
from memplan.job.usercode import display, innermost, is_user_file, user_code


def import_file(path: Path) -> ModuleType:
    """Import a file: as a module of its package where it lies in one, else under its own name.

    Its folder is on ``sys.path`` then: siblings, dataclasses and pickles work.
    """
    path = path.resolve()
    depth = _packages_above(path)
    if depth:
        return _import_in_package(path, depth)
    _put_on_path(path.parent)
    # A file that is called like a module already loaded (types.py) must not take that one's place.
    namesake = sys.modules.get(path.stem)
    is_free = namesake is None or getattr(namesake, "__file__", None) == str(path)
    return _executed(path, path.stem if is_free else f"{path.stem} (target)")


def import_module(name: str) -> ModuleType:
    """Import by name, the current folder first, as ``python -m`` does.

    Raises:
        UsageError: The module or a package above it does not exist.
    """
    _put_on_path(Path.cwd())
    try:
        with _imported(Path(name)), user_code(name):
            return importlib.import_module(name)
    except Exception as error:
        cause = error.__cause__
        if isinstance(cause, ModuleNotFoundError) and cause.name and f"{name}.".startswith(f"{cause.name}."):
            hint = f"run memplan in the folder that holds it ({Path.cwd()} does not), or install it"
            raise UsageError(f"there is no module '{cause.name}'", hint=hint) from error
        raise


def compile_user_code_anew() -> None:
    """Let this process import the user's modules from their source, never from compiled files, and leave none behind.

    Python takes a compiled file for the source's where size and second of the last change agree; a script that rewrites
    a target and asks again is faster than that, and would get the former target's figure.
    """
    stats = SourceFileLoader.path_stats

    def refused(loader: SourceFileLoader, path: str) -> Mapping[str, Any]:
        if is_user_file(path):
            raise OSError(f"{path} is compiled anew")  # What importlib.abc.SourceLoader asks of sources without a date.
        return stats(loader, path)

    loader_class: Any = SourceFileLoader
    loader_class.path_stats = refused


def _import_in_package(path: Path, depth: int) -> ModuleType:
    """Import a file by its dotted name; packages whose own code cannot run stand empty above it."""
    root = path.parents[depth]
    parts = [*path.relative_to(root).with_suffix("").parts]
    folders = {".".join(parts[:count]): root.joinpath(*parts[:count]) for count in range(1, depth + 1)}
    _put_on_path(root)
    # Files that import their siblings without a dot find them, after everything else.
    if str(path.parent) not in sys.path:
        sys.path.append(str(path.parent))
    _make_room(parts[0], root)
    for name, folder in folders.items():
        if name in sys.modules:
            continue
        try:
            with _imported(path), user_code(display(folder / "__init__.py")):
                importlib.import_module(name)
        except EstimateError:
            empty = ModuleType(name)
            empty.__path__ = [str(folder)]
            sys.modules[name] = empty
    if parts[-1] == "__init__":
        return sys.modules[".".join(parts[:-1])]
    return _executed(path, ".".join(parts))


def _make_room(package: str, root: Path) -> None:
    """Forget an installed package of the same name, so that the one in this folder is imported."""
    loaded = sys.modules.get(package)
    if loaded is None or any(Path(each).is_relative_to(root) for each in getattr(loaded, "__path__", ())):
        return
    for name in [name for name in sys.modules if name == package or name.startswith(f"{package}.")]:
        del sys.modules[name]


def _packages_above(path: Path) -> int:
    """How many folders above a file are packages: those with ``__init__.py``, and as many as its imports climb."""
    count = next(count for count, folder in enumerate(path.parents) if not (folder / "__init__.py").is_file())
    try:
        tree = parse_source(read_bytes(path))
    except (SyntaxError, ValueError):
        return count
    climbs = [node.level for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)]
    return min(max([count, *climbs]), len(path.parents) - 1)


def _executed(path: Path, name: str) -> ModuleType:
    spec = importlib.util.spec_from_file_location(name, path)
    if spec is None or spec.loader is None:
        raise UsageError(f"'{display(path)}' is not a Python file")
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    try:
        with _imported(path), user_code(display(path)):
            spec.loader.exec_module(module)
    except BaseException:
        sys.modules.pop(name, None)
        raise
    return module


def _put_on_path(folder: Path) -> None:
    if str(folder) not in sys.path:
        sys.path.insert(0, str(folder))


@contextmanager
def _imported(path: Path) -> Iterator[None]:
    """Let user code that reads ``sys.argv`` while imported see a script without arguments, and stop it where it trains.

    Raises:
        EstimateError: From within, where an optimizer steps: the loop may be endless.
    """
    from torch.optim.optimizer import register_optimizer_step_pre_hook

    def stop(*_: object) -> None:
        frames = [(frame.f_code.co_filename, line) for frame, line in traceback.walk_stack(None)]
        raise EstimateError(
            f"{display(path)} trains while it is imported",
            where=innermost(frames[::-1]),
            hint='it is a program: --as script runs it as one; or move what trains below  if __name__ == "__main__":',
        )

    before, sys.argv = sys.argv, [str(path)]
    stopping = register_optimizer_step_pre_hook(stop)
    try:
        yield
    finally:
        stopping.remove()
        sys.argv = before
