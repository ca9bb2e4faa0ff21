"""Strict reading of plain data: every wrong value and every unknown key is a problem with its place.

A reader takes what JSON holds and returns the value, or raises ``ValueError`` saying what is wrong with it. It says in
JSON Schema, too, what it takes: what is published is made of what reads.
"""

import difflib
import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from types import NoneType
from typing import Any, Literal, NoReturn, get_args, get_origin

from memplan.errors import MemplanError

Read = Callable[[object], Any]


@dataclass(frozen=True, slots=True)
class Reader:
    """Reads one kind of value."""

    read: Read
    """Returns it, or raises ``ValueError``."""
    schema: Mapping[str, Any]
    """What it takes, in JSON Schema; some of what it refuses only it can know."""

    def __call__(self, content: object) -> Any:
        """Read a value."""
        return self.read(content)

    def then(self, make: Callable[[Any], Any]) -> "Reader":
        """Return a reader that makes something of what this one reads."""
        return replace(self, read=lambda content: make(self.read(content)))

    def described(self, description: str) -> "Reader":
        """Return the same with a description for those who read the schema."""
        return replace(self, schema={"description": description, **self.schema})

    def document(self, title: str, description: str) -> "Reader":
        """Return the same for a whole file, whose schema is published."""
        head = {"$schema": "https://json-schema.org/draft/2020-12/schema", "title": title, "description": description}
        return replace(self, schema={**head, **self.schema})


def reads(schema: Mapping[str, Any]) -> Callable[[Read], Reader]:
    """Make a reader of a function.

    Args:
        schema: What it takes.
    """
    return lambda read: Reader(read, schema)


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
    properties = {key: dict(reader.schema) for key, reader in readers.items()}
    closed = {"type": "object", "additionalProperties": False}

    @reads({**closed, "required": sorted(required), "properties": properties})
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


@reads({"type": "string", "minLength": 1})
def text(content: object) -> str:
    """Any text but the empty one."""
    if not isinstance(content, str) or not content:
        refuse("text", content)
    return content


@reads({"type": "boolean"})
def switch(content: object) -> bool:
    """True or false."""
    if not isinstance(content, bool):
        refuse("true or false", content)
    return content


def count(least: int) -> Reader:
    """A whole number of at least so much."""

    @reads({"type": "integer", "minimum": least})
    def read(content: object) -> int:
        # bool is an int to Python, but ``"batch_size": true`` is a slip.
        if isinstance(content, bool) or not isinstance(content, int) or content < least:
            refuse(f"a whole number of at least {least}", content)
        return content

    return read


@reads({"type": "number", "minimum": 0})
def number(content: object) -> float:
    """A finite number of at least 0."""
    # NaN fails every comparison, so the condition says what is right.
    if isinstance(content, bool) or not isinstance(content, int | float) or not 0 <= content < math.inf:
        refuse("a number of at least 0", content)
    return float(content)


def above(limit: float) -> Reader:
    """A finite number of more than so much, and at least 0."""

    @reads({"type": "number", "exclusiveMinimum": limit})
    def read(content: object) -> float:
        if number(content) <= limit:
            refuse(f"a number above {limit:g}", content)
        return float(number(content))

    return read


def choice(words: tuple[Any, ...]) -> Reader:
    """One of these."""

    @reads({"enum": list(words)})
    def read(content: object) -> Any:
        if isinstance(content, bool) or content not in words:
            refuse(f"one of {', '.join(map(str, words))}", content)
        return content

    return read


def optional(reader: Reader) -> Reader:
    """The same, or null."""
    schema = {"anyOf": [{"type": "null"}, dict(reader.schema)]}
    return Reader(lambda content: None if content is None else reader(content), schema)


def each(reader: Reader) -> Reader:
    """A list of them, as a tuple."""

    @reads({"type": "array", "items": dict(reader.schema)})
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
