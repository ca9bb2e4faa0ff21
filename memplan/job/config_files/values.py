"""Values as configuration files write them: numbers in quotes, switches in words."""

from collections.abc import Callable
from types import NoneType
from typing import Any, Literal, NoReturn, get_args, get_origin

_SWITCHES = {"true": True, "yes": True, "on": True, "1": True, "false": False, "no": False, "off": False, "0": False}


def whole(content: object) -> int:
    """A whole number of at least 1, written as ``8``, ``5e8`` or in quotes."""
    value = _number(content)
    if value is None or value != int(value) or value < 1:
        refuse("a whole number above 0", content)
    return int(value)


def elements(content: object) -> int:
    """The same, or 0."""
    value = _number(content)
    if value is None or value != int(value) or value < 0:
        refuse("a whole number of at least 0", content)
    return int(value)


def norm(content: object) -> float:
    """A number of at least 0."""
    value = _number(content)
    if value is None or value < 0:
        refuse("a number of at least 0", content)
    return value


def switch(content: object) -> bool:
    """True or false, as YAML or in words."""
    if isinstance(content, bool):
        return content
    found = _SWITCHES.get(str(content).lower())
    if found is None:
        refuse("true or false", content)
    return found


def word(content: object) -> str:
    """A word, as it is compared; YAML takes a bare ``no`` for false."""
    if content is False:
        return "no"
    if not isinstance(content, str):
        refuse("text", content)
    return content.lower()


def words(content: object) -> tuple[str, ...]:
    """A list of words, or words in one text."""
    items: Any = content.split() if isinstance(content, str) else content
    if not isinstance(items, list) or not all(isinstance(item, str) for item in items):
        refuse("a list of words", content)
    return tuple(items)


def _number(content: object) -> float | None:
    if isinstance(content, bool) or not isinstance(content, int | float | str):
        return None
    try:
        value = float(content)
    except ValueError:
        return None
    return value if abs(value) < float("inf") else None


def of_type(hint: Any) -> Callable[[object], Any]:
    """Return what reads a field of this annotation: bool, int, ``Literal``, or one of them or None."""
    if hint in (bool, int):
        return switch if hint is bool else elements
    if get_origin(hint) is Literal:
        return choice(get_args(hint))
    [kind] = [argument for argument in get_args(hint) if argument is not NoneType]
    return of_type(kind)


def choice(words: tuple[Any, ...]) -> Callable[[object], Any]:
    """Return what reads one of these."""

    def read(content: object) -> Any:
        if isinstance(content, bool) or content not in words:
            refuse(f"one of {', '.join(map(str, words))}", content)
        return content

    return read


def refuse(expected: str, content: object) -> NoReturn:
    """Say what should be there.

    Raises:
        ValueError: Always.
    """
    raise ValueError(f"expected {expected}, found {'nothing' if content is None else repr(content)[:40]}")
