"""Warnings of libraries say nothing to who asked memplan: they stay away from standard error, the user's own do not."""

import contextlib
import logging
import os
import sys
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from memplan.job.usercode import is_user_file

_VERBOSITY = {"TRANSFORMERS_VERBOSITY": "error", "HF_HUB_VERBOSITY": "error", "DIFFUSERS_VERBOSITY": "error"}
"""Variables by which libraries with handlers of their own choose what they write (their pages on logging)."""


def hush_libraries() -> None:
    """From here on, in this process and those it starts; ``MEMPLAN_DEBUG=1`` leaves everything as it is."""
    if os.environ.get("MEMPLAN_DEBUG") == "1":
        return
    for name, value in _VERBOSITY.items():
        os.environ.setdefault(name, value)
    warnings.showwarning = _users_own(warnings.showwarning)
    if logging.lastResort is not None:
        logging.lastResort.addFilter(lambda record: is_user_file(record.pathname))


@contextmanager
def quiet() -> Iterator[None]:
    """Keep back warnings and log records of imports: missing GPUs, parts that could not be loaded, advice to others."""
    former = logging.root.manager.disable
    logging.disable(logging.WARNING)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        logging.disable(former)


@contextmanager
def hushed() -> Iterator[None]:
    """The same of Python's warnings alone, and undone at the end."""
    with warnings.catch_warnings():
        if os.environ.get("MEMPLAN_DEBUG") != "1":
            warnings.showwarning = _users_own(warnings.showwarning)
        yield


def _users_own(show: Callable[..., None]) -> Callable[..., None]:
    """What shows a warning, for those alone that the user's own files give."""

    def show_users_own(message: Warning | str, category: type[Warning], filename: str, *rest: Any) -> None:
        if is_user_file(filename):
            show(message, category, filename, *rest)

    return show_users_own


_SEEN: set[str] = set()
"""What has run in this process before."""


@contextmanager
def printed_once(name: str) -> Iterator[None]:
    """Let what user code prints be seen when it runs for the first time: it runs once for each answer.

    Args:
        name: What runs.
    """
    if name in _SEEN and os.environ.get("MEMPLAN_DEBUG") != "1":
        with _without_output():
            yield
    else:
        _SEEN.add(name)
        yield


@contextmanager
def _without_output() -> Iterator[None]:
    """Also what C code and other processes write."""
    flush_output()
    nothing, kept = os.open(os.devnull, os.O_WRONLY), {stream: os.dup(stream) for stream in (1, 2)}
    for stream in kept:
        os.dup2(nothing, stream)
    try:
        yield
    finally:
        flush_output()
        for stream, former in kept.items():
            os.dup2(former, stream)
            os.close(former)
        os.close(nothing)


def flush_output() -> None:
    """Let what was printed be written now."""
    for stream in (sys.stdout, sys.stderr):
        # User code may have closed or replaced them.
        with contextlib.suppress(OSError, ValueError, AttributeError):
            stream.flush()
