"""Warnings of libraries say nothing to who asked memplan: they stay away from standard error, the user's own do not."""

import logging
import os
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from memplan.files.output import without_output
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
        with without_output(1, 2):
            yield
    else:
        _SEEN.add(name)
        yield
