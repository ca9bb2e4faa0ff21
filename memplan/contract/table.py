"""How records stand in a document where that is not simply field by field.

A record without a table stands as an object of all its fields. A table names the keys that differ, and where each takes
its value from; fields that no key takes up stand under their own names.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, TypeVar

from memplan.contract.fields import Attribute, attribute, returned, types_of

K = TypeVar("K")
Form = Literal["value", "columns", "object", "spread", "if_any", "or_null"]
"""How a value stands under its key."""


@dataclass(frozen=True, slots=True)
class Formed:
    """A field that stands in a form of its own; the functions below make them."""

    path: str
    """The field."""
    form: Form
    """How it stands."""


def columns(path: str) -> Formed:
    """Return rows, named tuples, as one object of lists, a list for each key of a row: small where rows are many."""
    return Formed(path, "columns")


def or_null(path: str) -> Formed:
    """Return a value that stands as null where it is empty."""
    return Formed(path, "or_null")


def if_any(path: str) -> Formed:
    """Return a value whose key is left out where it is empty or None."""
    return Formed(path, "if_any")


@dataclass(frozen=True, slots=True)
class Constant:
    """The same in every document."""

    value: Any
    """What it is."""
    hint: Any = None
    """Its type, of what is no literal: an empty list says nothing of what it may hold."""


@dataclass(frozen=True, slots=True)
class Computed:
    """What a function of the record returns, and the field that it is read back into."""

    function: Callable[[Any], Any]
    """Its annotation is the type, its docstring the description."""
    path: str
    """The field."""


def made(kind: type[K], hint: Any, description: str, get: Callable[[K], Any]) -> Attribute:  # noqa: ARG001
    """Return a key whose value is worked out."""
    return Attribute(hint, lambda: description, get)


Source = str | Formed | Constant | Computed | Attribute | Callable[[Any], Any] | Mapping[str, Any]
"""Where a key's value comes from: an attribute or a path of them, one of the above, a function of the record, or a
mapping of further keys, which is an object with values of the same record."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Table:
    """How the records of one class stand."""

    keys: Mapping[str, Source] = field(default_factory=dict)
    """Key → where its value comes from."""
    spread: Sequence[str] = ()
    """Fields that hold records whose keys stand beside these."""
    omit: Sequence[str] = ()
    """Fields that are not exchanged."""
    rest: bool = True
    """Do all other fields stand under their own names?"""
    before: Callable[[Any], Any] | None = None
    """Changes plain data before it is read: checks a version, fills in what is written as null."""


@dataclass(frozen=True, slots=True)
class Typed:
    """A record that stands as the text that people type, which ``str`` makes of it."""

    parse: Callable[[str], Any]
    """Reads it, or raises a ``UsageError``."""


@dataclass(frozen=True, slots=True)
class Refused:
    """One kind of several that cannot be exchanged."""

    what: str
    """What is said where one is to be written."""
    hint: str
    """Why."""


Tables = Mapping[type, Table | Typed | Refused | str]
"""Class → its table; a text is the one attribute that stands for a value of the class."""


def only(*names: str) -> Table:
    """Return the table of these attributes and no others."""
    return Table(keys={name: name for name in names}, rest=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class Key:
    """A key of an object, resolved: what is written, read and described there."""

    name: str
    """The key; empty for one whose object is spread."""
    attribute: Attribute
    """Its value, type and description."""
    field: str = ""
    """The field that reading fills; empty: the key is only written."""
    form: Form = "value"
    """How the value stands."""
    inner: tuple["Key", ...] = ()
    """Of ``object``: its keys."""


def keys_of(kind: type, tables: Tables) -> tuple[Key, ...]:
    """Resolve the keys that a record of a class has in a document."""
    table = tables.get(kind, Table())
    assert isinstance(table, Table)  # noqa: S101 - texts are for what is no object.
    taken = {*_taken(table.keys), *table.spread, *table.omit}
    own = [name for name in types_of(kind) if name not in taken] if table.rest else []
    sources: Mapping[str, Source] = {name: name for name in own} | dict(table.keys)
    spread = (Key(name="", attribute=attribute(kind, path), field=path, form="spread") for path in table.spread)
    return (*spread, *(_key(kind, name, source) for name, source in sources.items()))


def _key(kind: type, name: str, source: Source) -> Key:
    match source:
        case str():
            return Key(name=name, attribute=attribute(kind, source), field=source if source in types_of(kind) else "")
        case Formed(path, form):
            found = attribute(kind, path)
            return Key(name=name, attribute=_or_null(found) if form == "or_null" else found, field=path, form=form)
        case Computed(function, path):
            described = returned(function)._replace(describe=attribute(kind, path).describe)
            return Key(name=name, attribute=described, field=path)
        case Mapping():
            inner = tuple(_key(kind, key, below) for key, below in source.items())
            return Key(name=name, attribute=Attribute(None, str, lambda record: record), form="object", inner=inner)
        case Attribute():
            found = source
        case Constant(value, hint):
            found = Attribute(hint or Literal[value], str, lambda _: value)
        case _:
            found = returned(source)
    return Key(name=name, attribute=found)


def _or_null(found: Attribute) -> Attribute:
    return found._replace(hint=found.hint | None, get=lambda record: found.get(record) or None)


def _taken(keys: Mapping[str, Source]) -> Iterator[str]:
    """Yield the fields that keys take up."""
    for source in keys.values():
        match source:
            case str():
                yield source.partition(".")[0]
            case Formed() | Computed():
                yield source.path
            case Mapping():
                yield from _taken(source)
            case _:
                pass
