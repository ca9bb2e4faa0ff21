"""Text from outside in emitted files: one function for each kind of place, so that it says there what it says here.

A setup is a file like any other: whoever wrote it chose every word in it. Configurations as data are written by
libraries that quote (``json``, ``yaml``); what is put together here is code, docstrings and comments.
"""

import ast
import json
from collections.abc import Callable, Mapping
from pathlib import PurePath

from memplan.errors import UsageError


def one_line(text: str) -> str:
    """The text as one line of a comment: line breaks and all that does not print are written as Python escapes them."""
    return "".join(char if char.isprintable() else ascii(char)[1:-1] for char in text)


def in_docstring(text: str) -> str:
    r"""The text as one line between ``\"\"\"``, which says the same and cannot end it."""
    return one_line(text.replace("\\", r"\\")).replace('"', r"\"")


def python(value: object) -> str:
    """A plain value as code.

    Raises:
        ValueError: No literal says it: infinity, or an object.
    """
    text = repr(value)
    if ast.literal_eval(text) != value:
        raise ValueError(f"{text} is no literal")
    return text


def _read_yaml(text: str) -> object:
    import yaml

    return yaml.safe_load(text)


_READERS: Mapping[str, Callable[[str], object]] = {
    ".py": lambda text: compile(text, "<emitted>", "exec", dont_inherit=True),
    ".json": json.loads,
    ".txt": str,
    ".yaml": _read_yaml,
    ".yml": _read_yaml,
}
"""How a file ends → what reads it; ``ValueError``, ``SyntaxError`` or ``YAMLError`` where it cannot."""


def check(files: Mapping[str, str]) -> None:
    """Read again what is going to be written.

    Raises:
        UsageError: A file is not of its language, or no UTF-8.
    """
    for name, content in files.items():
        try:
            content.encode("utf-8")
            _READERS[PurePath(name).suffix](content)
        except Exception as error:
            what = f"{name} would not be readable, so nothing is written: {error}"
            raise UsageError(what, hint="the setup holds something that this format cannot say") from error
