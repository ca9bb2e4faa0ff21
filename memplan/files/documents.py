"""JSON and TOML as plain data, without what only a hostile or a broken file has.

Numbers beyond 64 bits, infinities, halves of characters and bottomless nesting are refused where they come in; what
works with the data would stumble over them one by one.
"""

import json
import re
import tomllib
from itertools import chain
from math import isfinite
from pathlib import Path
from typing import Any, NoReturn

from memplan.files.read import DATA, SETTINGS, UnreadableError, read_bytes, read_text

DEEPEST = 64
"""Objects and lists inside one another. memplan's own files have 12; Python's parsers and copiers end near 900."""
_LARGEST = 2**64
"""No size, address or count is as large."""
_KEY = r"""(?:[\w-]++|"(?:\\.|[^"\\\n]){0,200}+"|'[^'\n]{0,200}+')"""
"""Quotes that go on for longer hold texts; a file has no room for many keys of such a length."""
_LONE = re.compile("[\ud800-\udfff]")
_MANY_DOTS = re.compile(rf"(?<![\w-]){_KEY}(?:[ \t]*+\.[ \t]*+{_KEY}){{{DEEPEST}}}")
"""A key of so many parts: ``tomllib`` takes a time that grows with their square."""


class MalformedError(UnreadableError):
    """The text is not of its language."""


def read_json(path: Path | str, most: int = DATA) -> Any:
    """What a JSON file holds.

    Raises:
        UnreadableError: It cannot be read, or is no JSON that memplan or a person would write.
    """
    return parse_json(read_bytes(path, most))


def parse_json(text: str | bytes) -> Any:
    """The same of what stands in one."""
    try:
        content = json.loads(text, parse_constant=_refuse_constant)
    except RecursionError:
        raise _too_deep() from None
    except ValueError as error:
        raise MalformedError(f"it is no JSON: {error}") from None
    check_plain(content)
    return content


def read_toml(path: Path | str) -> tuple[dict[str, Any], str]:
    """What a TOML file holds, and its text.

    Raises:
        UnreadableError: It cannot be read, or is no TOML; says at which line.
    """
    text = read_text(path, SETTINGS).replace("\r\n", "\n")
    if _MANY_DOTS.search(text):
        raise UnreadableError(f"a key has more than {DEEPEST} parts")
    try:
        content = tomllib.loads(text)
    except RecursionError:
        raise _too_deep() from None
    except ValueError as error:
        raise UnreadableError(str(error)) from None
    check_plain(content)
    return content, text


def check_plain(content: object) -> None:
    """Look through plain data, however it was written.

    Raises:
        UnreadableError: It holds what the head of this module says.
    """
    level: list[object] = [content]
    for _ in range(DEEPEST):
        level = [each for held in level for each in _inside(held)]
        if not level:
            return
    raise _too_deep()


def _inside(held: object) -> list[object]:
    """The objects and lists directly inside; numbers and texts beside them are looked at."""
    containers: list[object] = []
    values: Any = chain(held, held.values()) if isinstance(held, dict) else held if isinstance(held, list) else (held,)
    # One loop without calls: results with timelines hold millions of numbers.
    for value in values:
        kind = type(value)
        if kind is dict or kind is list:
            containers.append(value)
        elif kind is int:
            if not -_LARGEST < value < _LARGEST:
                raise UnreadableError("a number in it is beyond 64 bits")
        elif kind is float:
            if not isfinite(value):
                raise UnreadableError("a number in it is infinite, or none")
        elif kind is str and not value.isascii() and _LONE.search(value):
            raise UnreadableError("a text in it has half of a character (a lone surrogate)")
    return containers


def _refuse_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is no number of JSON")


def _too_deep() -> UnreadableError:
    return UnreadableError(f"more than {DEEPEST} objects or lists stand inside one another")
