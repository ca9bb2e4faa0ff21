"""Loops over plain arrays, compiled where numba is installed and interpreted where it is not.

Such a loop calls nothing but others like it and the built-ins, so that both ways do the same.
"""

from collections.abc import Callable
from importlib import import_module
from importlib.util import find_spec
from typing import ParamSpec, TypeVar

Parameters = ParamSpec("Parameters")
Returned = TypeVar("Returned")

HAS_NUMBA = find_spec("numba") is not None
"""Are loops compiled here?"""


def compiled(loop: Callable[Parameters, Returned]) -> Callable[Parameters, Returned]:
    """The loop, compiled when it is called first if numba is there; its code is kept on disk where that is possible."""
    if not HAS_NUMBA:
        return loop
    njit = import_module("numba").njit
    try:
        fast: Callable[Parameters, Returned] = njit(cache=True)(loop)
    except RuntimeError:
        # Neither the package's folder nor the user's cache can be written.
        fast = njit(loop)
    return fast
