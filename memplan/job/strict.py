"""Strict reading of plain data: every wrong value and every unknown key is a problem with its place.

A reader takes what JSON holds and returns the value, or raises ``ValueError`` saying what is wrong with it.
"""

import difflib
import math
from collections.abc import Callable, Iterator, Mapping
from types import NoneType
from typing import Any, Literal, NoReturn, get_args, get_origin

from memplan.errors import MemplanError

Reader = Callable[[object], Any]


class WrongValuesError(ValueError):
    """Several things are wrong inside a value; each stands with its place."""

    def __init__(self, problems: list[str]) -> None:
        super().__init__("; ".join(problems))
        self.problems = problems


def record(readers: Mapping[str, Reader], required: frozenset[str] = frozenset()) -> Reader:
    """Reads an object of known keys into a dict of their values; a key that is absent is absent there too.

    Args:
        readers: Key → what reads its value.
        required: Keys that must be there.
    """

    def read(content: object) -> dict[str, Any]:
        if not isinstance(content, dict):
            refuse("an object", content)
        values, problems = values_of(content, readers, required)
        if problems:
            raise WrongValuesError(problems)
        return values

    return read


def values_of(
    content: Mapping[str, object], readers: Mapping[str, Reader], required: frozenset[str] = frozenset()
) -> tuple[dict[str, Any], list[str]]:
    """What can be read of an object, for ``record`` and for those who want to look at it beside the rest.

    Args:
        content: Key → what stands there.
        readers: Key → what reads its value.
        required: Keys that must be there.

    Returns:
        Key → value; and what is wrong, each with its key.
    """
    problems = [f"{key}: {_unknown(key, readers)}" for key in content if key not in readers]
    problems += [f"{key}: missing" for key in sorted(required - content.keys())]
    values: dict[str, Any] = {}
    for key, reader in readers.items():
        if key in content:
            problems += _place(key, reader, content[key], values)
    return values, problems


def _place(key: str, reader: Reader, content: object, values: dict[str, Any]) -> Iterator[str]:
    try:
        values[key] = reader(content)
    except WrongValuesError as inner:
        yield from (f"{key}.{problem}" for problem in inner.problems)
    except (ValueError, MemplanError) as error:
        yield f"{key}: {error.what if isinstance(error, MemplanError) else error}"


def _unknown(key: str, known: Mapping[str, Reader]) -> str:
    near = difflib.get_close_matches(key, known, n=1)
    return "unknown key" + (f"; did you mean {near[0]}?" if near else "")


def text(content: object) -> str:
    """Any text but the empty one."""
    if not isinstance(content, str) or not content:
        refuse("text", content)
    return content


def switch(content: object) -> bool:
    """True or false."""
    if not isinstance(content, bool):
        refuse("true or false", content)
    return content


def count(least: int) -> Reader:
    """A whole number of at least so much."""

    def read(content: object) -> int:
        # bool is an int to Python, but ``"batch_size": true`` is a slip.
        if isinstance(content, bool) or not isinstance(content, int) or content < least:
            refuse(f"a whole number of at least {least}", content)
        return content

    return read


def number(content: object) -> float:
    """A finite number of at least 0."""
    # NaN fails every comparison, so the condition says what is right.
    if isinstance(content, bool) or not isinstance(content, int | float) or not 0 <= content < math.inf:
        refuse("a number of at least 0", content)
    return float(content)


def choice(words: tuple[Any, ...]) -> Reader:
    """One of these."""

    def read(content: object) -> Any:
        if isinstance(content, bool) or content not in words:
            refuse(f"one of {', '.join(map(str, words))}", content)
        return content

    return read


def optional(reader: Reader) -> Reader:
    """The same, or null."""
    return lambda content: None if content is None else reader(content)


def each(reader: Reader) -> Reader:
    """A list of them, as a tuple."""

    def read(content: object) -> tuple[Any, ...]:
        if not isinstance(content, list):
            refuse("a list", content)
        return tuple(reader(item) for item in content)

    return read


def of_type(hint: Any, *, whole: Reader, truth: Reader) -> Reader:
    """What reads a field of this annotation: bool, int, ``Literal``, or one of them or None.

    Args:
        hint: The annotation.
        whole: Reads an int.
        truth: Reads a bool.
    """
    if hint in (bool, int):
        return truth if hint is bool else whole
    if get_origin(hint) is Literal:
        return choice(get_args(hint))
    [kind] = [argument for argument in get_args(hint) if argument is not NoneType]
    return optional(of_type(kind, whole=whole, truth=truth))


def refuse(expected: str, content: object) -> NoReturn:
    """Say what should be there.

    Raises:
        ValueError: Always.
    """
    raise ValueError(f"expected {expected}, found {'nothing' if content is None else repr(content)[:40]}")
