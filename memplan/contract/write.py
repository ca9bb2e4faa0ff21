"""Writes records as plain data, by their types: what writes a class is put together once."""

from array import array
from collections.abc import Callable, Collection, Mapping, Sequence
from enum import Enum
from pathlib import PurePath
from typing import Annotated, Any, get_args, get_origin

from memplan.contract.fields import Array, alternatives, attribute, is_record, without_none
from memplan.contract.table import Key, Refused, Tables, Typed, keys_of
from memplan.errors import UsageError

Write = Callable[[Any], Any]
"""Makes plain data of a value."""


class Writer:
    """Writes the records of one document."""

    def __init__(self, tables: Tables) -> None:
        self._tables = tables
        self._records: dict[type, Write] = {}

    def of(self, hint: Any) -> Write | None:
        """Return what writes values of a type; None where they are plain data already."""
        hint = get_args(hint)[0] if get_origin(hint) is Annotated else getattr(hint, "__supertype__", hint)
        kind, optional = without_none(hint)
        if len(members := alternatives(kind)) > 1:
            found: Write | None = self._union(members)
        else:
            found = self._one(kind, get_origin(kind) or kind)
        return _unless_none(found) if optional else found

    def _one(self, kind: Any, origin: Any) -> Write | None:
        if not isinstance(origin, type):
            return None
        match self._tables.get(origin):
            case Typed():
                return str
            case Refused() as refused:
                return _refusal(refused)
            case None if not is_record(origin):
                pass
            case _:
                return self._record(origin)
        if issubclass(origin, Enum):
            return lambda value: value.value
        return PurePath.as_posix if issubclass(origin, PurePath) else self._many(kind, origin)

    def _many(self, kind: Any, origin: type) -> Write | None:
        if issubclass(origin, Array):
            return array.tolist
        if issubclass(origin, Mapping):
            return _mapping(self.of(get_args(kind)[1]))
        if issubclass(origin, Collection) and not issubclass(origin, str):
            writes = [self.of(member) for member in get_args(kind) if member is not ...]
            return _sequence(writes[0]) if len(set(writes)) == 1 else _each(writes)
        return None

    def _union(self, members: Sequence[Any]) -> Write:
        writes = {get_origin(member) or member: self.of(member) for member in members}

        def write(value: Any) -> Any:
            found = writes.get(type(value))
            return value if found is None else found(value)

        return write

    def _record(self, kind: type) -> Write:
        if kind not in self._records:
            table = self._tables.get(kind)
            if isinstance(table, str):
                found = attribute(kind, table)
                write = self.of(found.hint)
                self._records[kind] = found.get if write is None else lambda value: write(found.get(value))
            else:
                parts: list[tuple[Key, Write]] = []
                self._records[kind] = lambda record: _object(parts, record)
                # Filled afterwards: a record may hold records of its own class.
                parts += [(key, self._key(key)) for key in keys_of(kind, self._tables)]
        return self._records[kind]

    def _key(self, key: Key) -> Write:
        if key.form == "object":
            parts = [(below, self._key(below)) for below in key.inner]
            return lambda record: _object(parts, record)
        get = key.attribute.get
        if key.form == "columns":
            columns = [(below, self._key(below)) for below in keys_of(get_args(key.attribute.hint)[0], self._tables)]
            return lambda record: {below.name: [write(row) for row in get(record)] for below, write in columns}
        write = self.of(key.attribute.hint)
        return get if write is None else lambda record: write(get(record))


def _object(parts: Sequence[tuple[Key, Write]], record: Any) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for key, write in parts:
        value = write(record)
        if key.form == "spread":
            found |= value or {}
        elif value or key.form != "if_any":
            found[key.name] = value
    return found


def _refusal(refused: Refused) -> Write:
    def refuse(_: Any) -> Any:
        raise UsageError(refused.what, hint=refused.hint)

    return refuse


def _unless_none(write: Write | None) -> Write | None:
    return None if write is None else lambda value: None if value is None else write(value)


def _mapping(write: Write | None) -> Write:
    if write is None:
        return lambda value: {str(key): held for key, held in value.items()}
    return lambda value: {str(key): write(held) for key, held in value.items()}


def _sequence(write: Write | None) -> Write:
    return list if write is None else lambda value: [write(item) for item in value]


def _each(writes: Sequence[Write | None]) -> Write:
    return lambda value: [item if write is None else write(item) for write, item in zip(writes, value, strict=True)]
