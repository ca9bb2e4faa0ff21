"""Packages that are not installed and that a program imports without using them: the import passes, a use fails.

Many a file of a package imports what only another of its functions needs. Where the program itself is prepared for the
package to be missing (the import stands under ``try``, or it asks ``find_spec``), it is told so. What only shows
things to people is used, and shows nothing.
"""

import ast
import importlib.machinery
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import cache
from types import CodeType, FrameType, ModuleType
from typing import Any, NoReturn

from memplan.files.read import read_bytes
from memplan.files.syntax import parse_source
from memplan.job.usercode import is_user_file


@contextmanager
def missing_packages(showing: Callable[[str], importlib.machinery.ModuleSpec | None]) -> Iterator[Sequence[str]]:
    """Let the user's files import packages that are not installed.

    Args:
        showing: What stands for a module that only shows things to people; None for any other.

    Yields:
        A sentence for each, as it comes.
    """
    finder = _Finder(showing)
    sys.meta_path.append(finder)
    try:
        yield finder.told
    finally:
        sys.meta_path.remove(finder)
        for name in finder.made:
            sys.modules.pop(name, None)


class _Finder:
    """Comes after all others (``importlib.abc.MetaPathFinder``)."""

    def __init__(self, showing: Callable[[str], importlib.machinery.ModuleSpec | None]) -> None:
        self._showing = showing
        self.made: list[str] = []
        self.told: list[str] = []

    def find_spec(self, name: str, _: Sequence[str] | None = None, __: Any = None) -> Any:
        """A module that fails when it is used, for imports that nothing guards."""
        top = name.partition(".")[0]
        if top not in self.made and not _is_unguarded():
            return None
        shows = self._showing(name)
        if top == name:
            use = "imported and not used" if shows is None else "told nothing"
            self.told.append(f"{name} is not installed; it is {use}")
        self.made.append(name)
        return shows or importlib.machinery.ModuleSpec(name, _Loader(), is_package=True)  # type: ignore[arg-type]


class _Loader:
    def create_module(self, spec: importlib.machinery.ModuleSpec) -> ModuleType:
        return _Missing(spec.name)

    def exec_module(self, module: ModuleType) -> None:
        """Nothing is to be run."""


class _Missing(ModuleType):
    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return _Unusable(self.__name__, name)


class _Unusable:
    """A name of a package that is not there."""

    def __init__(self, package: str, name: str) -> None:
        self.__dict__["_missing"] = (package, name)

    def _fail(self, *_: Any, **__: Any) -> NoReturn:
        package, name = self.__dict__["_missing"]
        raise ModuleNotFoundError(f"No module named '{package}', of which {name} is used", name=package)

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        package, before = self.__dict__["_missing"]
        return _Unusable(package, f"{before}.{name}")

    __call__ = __iter__ = __len__ = __getitem__ = __setitem__ = __enter__ = __bool__ = __mro_entries__ = _fail
    # As annotations they may be joined: ``Tokenizer | None``.
    __or__ = __ror__ = lambda self, _: self


def _is_unguarded() -> bool:
    """Does an import statement of the user's ask, with none on the way that is prepared for a failure?"""
    frame: FrameType | None = sys._getframe(2)  # noqa: SLF001 - documented, in spite of its name.
    asks = True
    while frame is not None:
        code, line = frame.f_code, frame.f_lineno
        frame = frame.f_back
        if code.co_filename.startswith("<frozen importlib"):
            continue
        if asks and not _imports(code, line):
            return False
        asks = False
        if is_user_file(code.co_filename) and _is_guarded(code.co_filename, line):
            return False
    return True


def _imports(code: CodeType, line: int) -> bool:
    if not is_user_file(code.co_filename):
        return False
    return any(isinstance(node, ast.Import | ast.ImportFrom) and node.lineno <= line <= (node.end_lineno or line)
               for node in _nodes(code.co_filename))  # fmt: skip


def _is_guarded(file: str, line: int) -> bool:
    return any(
        isinstance(node, ast.Try | ast.TryStar)
        and node.handlers
        and node.body[0].lineno <= line <= (node.body[-1].end_lineno or line)
        for node in _nodes(file)
    )


@cache
def _nodes(file: str) -> tuple[ast.AST, ...]:
    try:
        return tuple(ast.walk(parse_source(read_bytes(file))))
    except (SyntaxError, ValueError):
        return ()
