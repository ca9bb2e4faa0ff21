"""Errors of a program that was written for another release of a package than the installed one, and which it names."""

import importlib.metadata
import importlib.util
import inspect
import re
import sys
import traceback
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from types import FrameType, ModuleType

from memplan.files.read import UnreadableError, read_text

_KEYWORD = re.compile(r"^([\w.]+?)(?:\.__init__)?\(\) got an unexpected keyword argument")
_RELEASE = re.compile(r"\b(\w+)\.__version__")
_PAGES = ("requirements*.txt", "environment*.y*ml", "env.y*ml", "setup.py", "setup.cfg", "pyproject.toml", "*.md")
"""Files in which repositories name the releases that they want."""
_UP = 2
"""Folders above a file in which its repository's pages may lie. Chosen."""


def other_release(error: BaseException, is_theirs: Callable[[str], bool]) -> str | None:
    """Say which release of a package to install, or what to import, where the installed one lacks what is asked."""
    if isinstance(error, AttributeError) and isinstance(error.obj, ModuleType):
        inner = f"{error.obj.__name__}.{error.name}"
        if hasattr(error.obj, "__path__") and inner not in sys.modules and importlib.util.find_spec(inner):
            return f"{inner} is a module that nothing has imported: import {inner}"
    package = _lacking(error)
    if package is None:
        return None
    distribution = importlib.metadata.packages_distributions()[package][0]
    installed = importlib.metadata.version(distribution)
    what = f"the program is written for another release of {distribution} than the installed {installed}"
    for page in _pages(error, is_theirs):
        named = re.search(rf"\b{re.escape(distribution)}\s*(?:==|<=|<|~=)\s*[\w.]+", _text_of(page))
        if named and not named.group().endswith(installed):
            wanted = "".join(named.group().split()).rstrip(".")
            return f"{what}: pip install '{wanted}', as its {page.name} says"
    if isinstance(error, AttributeError) and not isinstance(error.obj, ModuleType | type):
        return None  # A slip of the pen as likely as not.
    return f"{what}: install the one that it was written for"


def statement(error: BaseException) -> str:
    """The line that raised it."""
    frames = traceback.extract_tb(error.__traceback__, limit=-1)
    return (frames[0].line or "") if frames else ""


def _text_of(page: Path) -> str:
    with suppress(UnreadableError):  # A page that cannot be read names nothing.
        return read_text(page)
    return ""


def is_there(module: str) -> bool:
    """Is a module missing from a package that is installed?"""
    package, _, inside = module.partition(".")
    return bool(inside) and package in importlib.metadata.packages_distributions()


def _lacking(error: BaseException) -> str | None:
    """The installed package that does not have what is asked of it."""
    owner: object = None
    if isinstance(error, ImportError):
        owner = error.name
    elif isinstance(error, AttributeError) and isinstance(error.obj, ModuleType | type):
        owner = error.obj.__name__ if isinstance(error.obj, ModuleType) else error.obj.__module__
    elif isinstance(error, AttributeError) and error.obj is not None:
        owner = next((kind.__module__ for kind in type(error.obj).__mro__ if not _is_own(kind.__module__)), None)
    elif isinstance(error, AssertionError) and (named := _RELEASE.search(statement(error))):
        owner = named[1]
    elif isinstance(error, TypeError) and (named := _KEYWORD.match(str(error))):
        owner = _module_of(error, named[1])
    package = owner.partition(".")[0] if isinstance(owner, str) else ""
    # Compiled modules differ by build (a CPU's has less), not by release.
    if package in sys.stdlib_module_names or _is_own(package) or str(owner).endswith("._C"):
        return None
    return package if importlib.metadata.packages_distributions().get(package) else None


def _is_own(module: str) -> bool:
    """Is it memplan's, whose stand-ins are classes over a package's?"""
    return module.partition(".")[0] == "memplan"


def _module_of(error: BaseException, name: str) -> str | None:
    """The module of a function or class that the innermost frame calls: all that its error tells is its name."""
    frames = [frame for frame, _ in traceback.walk_tb(error.__traceback__)]
    for value in _named(frames[-1]) if frames else ():
        for kind in inspect.getmro(value) if inspect.isclass(value) else (value,):
            if getattr(kind, "__qualname__", None) == name:
                return getattr(kind, "__module__", None)
    return None


def _named(frame: FrameType) -> Iterator[object]:
    for value in (*frame.f_locals.values(), *frame.f_globals.values()):
        yield value
        yield type(value)


def _pages(error: BaseException, is_theirs: Callable[[str], bool]) -> Iterator[Path]:
    files = [frame.f_code.co_filename for frame, _ in traceback.walk_tb(error.__traceback__)]
    theirs = next((Path(file).resolve() for file in reversed(files) if is_theirs(file)), None)
    for folder in () if theirs is None else theirs.parents[: _UP + 1]:
        for pattern in _PAGES:
            yield from sorted(folder.glob(pattern))
        if (folder / ".git").exists():
            return
