"""Loops over plain arrays, compiled where numba is installed and interpreted where it is not.

Such a loop calls nothing but others like it and the built-ins, so that both ways do the same.
"""

import contextlib
import hashlib
import os
from collections.abc import Callable, Iterator
from functools import cache
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import ParamSpec, TypeVar

import platformdirs

Parameters = ParamSpec("Parameters")
Returned = TypeVar("Returned")

HAS_NUMBA = find_spec("numba") is not None
"""Are loops compiled here?"""


def compiled(loop: Callable[Parameters, Returned]) -> Callable[Parameters, Returned]:
    """The loop, compiled when it is called first if numba is there; its code is kept on disk where that is possible."""
    if not HAS_NUMBA:
        return loop
    njit = import_module("numba").njit
    with _kept():
        try:
            fast: Callable[Parameters, Returned] = njit(cache=True)(loop)
        except RuntimeError:
            # Neither the package's folder nor the user's cache can be written.
            fast = njit(loop)
    return fast


@contextlib.contextmanager
def _kept() -> Iterator[None]:
    """Have numba keep code by what all loops and the records that they take are now; by itself it looks at one file.

    Whoever names a folder (``NUMBA_CACHE_DIR``) has said where.
    """
    config = import_module("numba").core.config
    former = config.CACHE_DIR
    config.CACHE_DIR = former or _folder()
    try:
        yield
    finally:
        config.CACHE_DIR = former


def is_ready() -> bool:
    """Is there nothing to compile, which takes some seconds once after an installation?"""
    return not HAS_NUMBA or Path(_folder()).is_dir()


@cache
def _folder(here: Path = Path(__file__).parent) -> str:
    """Beside Python's own compiled code, else in the user's cache."""
    digest = hashlib.sha256()
    for file in sorted(here.glob("*.py")):
        digest.update(file.read_bytes())
    beside = here / "__pycache__"
    with contextlib.suppress(OSError):
        beside.mkdir(exist_ok=True)
    is_ours = os.access(beside, os.W_OK)
    folder = beside if is_ours else platformdirs.user_cache_path("memplan", appauthor=False)
    return str(folder / f"compiled-{digest.hexdigest()[:16]}")
