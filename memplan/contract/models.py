"""Makes pydantic's models of records: what reads and describes a document in which they stand by tables."""

from array import array
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import MISSING, fields, is_dataclass, replace
from functools import wraps
from itertools import starmap
from pathlib import Path
from typing import Annotated, Any, ForwardRef, Union, get_args, get_origin

from annotated_types import Ge, MinLen
from pydantic import (
    AfterValidator,
    AllowInfNan,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Discriminator,
    Field,
    Strict,
    Tag,
    create_model,
)
from pydantic.json_schema import GenerateJsonSchema

from memplan.contract.fields import Array, alternatives, attribute, is_record, types_of, without_none
from memplan.contract.table import Key, Refused, Table, Tables, Typed, keys_of
from memplan.errors import MemplanError, in_one_line
from memplan.units import Bytes

_LEAVES = {bool: bool, int: int, float: float, Bytes: int}
TEXT = Annotated[str, MinLen(1)]
_HAND_WRITTEN = {str: TEXT, Path: Annotated[TEXT, AfterValidator(lambda text: Path(text))]}  # noqa: PLW0108 - no signature.
Part = tuple[str, Key]
"""The name of a model's field, and the key of which it is; keys may be words that no field can have."""


def parsed(parse: Callable[..., Any]) -> Callable[..., Any]:
    """Return what reads text of a form of its own; what it says of an option is said of the place."""

    @wraps(parse)
    def read(*content: Any) -> Any:
        try:
            return parse(*content)
        except MemplanError as error:
            raise ValueError(in_one_line(error)) from error

    return read


class Untitled(GenerateJsonSchema):
    """JSON Schema without titles that only repeat the keys."""

    def field_title_should_be_set(self, schema: Any) -> bool:  # noqa: ARG002 - pydantic's signature.
        """Return whether a field has a title."""
        return False


class Models:
    """The models of one document.

    Args:
        tables: How records stand where that is not field by field.
        reading: Is what they read made into records? Then keys that are only written are passed over.
        strict: Is nothing taken for a number that is none?
        closed: Is a key that is not known an error, and an empty text?
    """

    def __init__(self, tables: Tables, *, reading: bool, strict: bool = False, closed: bool = False) -> None:
        self._tables = tables
        self._reading = reading
        self._strict = strict
        self._closed = closed
        self._made: dict[type, Any] = {}

    def of(self, hint: Any) -> Any:
        """Return a type with a model in place of each record in it."""
        origin, arguments = get_origin(hint), get_args(hint)
        if origin is Annotated:
            return Annotated[self.of(arguments[0]), *arguments[1:]]
        if len(members := alternatives(hint)) > 1:
            return self._union([member for member in members if not isinstance(self._tables.get(member), Refused)])
        if isinstance(hint, type) and (hint in self._tables or is_record(hint)):
            return self._of_record(hint)
        if isinstance(origin, type):
            inner = tuple(argument if argument is ... else self.of(argument) for argument in arguments)
            return origin[inner]  # type: ignore[index]
        return self._leaf(hint)

    def _leaf(self, hint: Any) -> Any:
        if hint in _LEAVES:
            # A schema promises no more than is true: of a damaged snapshot even a size may be negative.
            limits: list[Any] = [Ge(0)] if hint is Bytes and self._strict else []
            limits += [AllowInfNan(False)] if hint is float and self._closed else []
            return Annotated[_LEAVES[hint], Strict(self._strict), *limits]
        if hint is Array:
            return Annotated[list[int], AfterValidator(_array)] if self._reading else list[int]
        return _HAND_WRITTEN.get(hint, hint) if self._closed else hint

    def _union(self, members: Sequence[Any]) -> Any:
        """Return a union; where keys are closed, records are told apart by the first key of each."""
        kinds = [kind for kind in members if self._closed and is_record(kind)]
        if len(kinds) < max(2, len(members)):
            return Union[tuple(self.of(member) for member in members)]  # noqa: UP007 - of a list.
        first = [keys_of(kind, self._tables)[0].name for kind in kinds]
        tagged = tuple(Annotated[self.of(kind), Tag(f"with {key}")] for kind, key in zip(kinds, first, strict=True))

        def tag_of(content: Any) -> str | None:
            found = [key for key in first if isinstance(content, Mapping) and key in content]
            return f"with {found[0]}" if len(found) == 1 else None

        return Annotated[Union[tagged], Discriminator(tag_of)]  # noqa: UP007 - of a list.

    def _of_record(self, kind: type) -> Any:
        match self._tables.get(kind):
            case str(name):
                return self._attribute(kind, name)
            case Typed(parse):
                return Annotated[TEXT, AfterValidator(parsed(parse))] if self._reading else str
            case _:
                return self._record(kind)

    def _attribute(self, kind: type, name: str) -> Any:
        found = self.of(attribute(kind, name).hint)
        return Annotated[found, AfterValidator(lambda value: kind(**{name: value}))] if self._reading else found

    def _record(self, kind: type) -> Any:
        if self._reading and not self._strict and self._is_plain(kind):
            return kind
        if kind not in self._made:
            self._made[kind] = ForwardRef(kind.__name__)
            parts = self._parts(keys_of(kind, self._tables))
            model = self._model(kind, kind.__name__, parts)
            made = self._reading_of(kind, model, parts) if self._reading else model
            model.model_rebuild(_types_namespace={kind.__name__: made})
            self._made[kind] = made
        return self._made[kind]

    def _reading_of(self, kind: type, model: Any, parts: Sequence[Part]) -> Any:
        steps: list[Any] = [AfterValidator(_builder(kind, parts))]
        if any(key.form == "spread" for _, key in parts):
            steps.append(BeforeValidator(_again))
        table = self._tables.get(kind)
        if isinstance(table, Table) and table.before:
            steps.append(BeforeValidator(table.before))
        return Annotated[model, *steps]

    def _is_plain(self, kind: type) -> bool:
        """Return whether pydantic can read a record as it is, which is faster."""
        inside = [member for hint in types_of(kind).values() for member in _records_in(hint)]
        return is_dataclass(kind) and kind not in self._tables and all(map(self._is_plain, inside))

    def _parts(self, keys: Sequence[Key]) -> list[Part]:
        if self._reading:
            kept = [key for key in keys if key.field or key.form == "object" or self._closed]
        else:
            kept = [inner for key in keys for inner in self._spread(key)]
        return [(f"field_{index}", key) for index, key in enumerate(kept)]

    def _spread(self, key: Key) -> Sequence[Key]:
        """Return a key as it stands: in place of one whose record is spread, the keys of that."""
        if key.form != "spread":
            return [key]
        kind, optional = without_none(key.attribute.hint)
        keys = [inner for below in keys_of(kind, self._tables) for inner in self._spread(below)]
        return [replace(inner, form="if_any") if optional else inner for inner in keys]

    def _model(self, kind: type, name: str, parts: Sequence[Part], doc: str | None = None) -> type[BaseModel]:
        made: dict[str, Any] = {field: (self._type(kind, key), self._field(kind, key)) for field, key in parts}
        config = ConfigDict(extra="forbid" if self._closed else "ignore")
        return create_model(name, __module__=kind.__module__, __doc__=doc or kind.__doc__, __config__=config, **made)

    def _type(self, kind: type, key: Key) -> Any:
        if key.form == "object":
            parts = self._parts(key.inner)
            model = self._model(kind, f"{kind.__name__}_{key.name}", parts, doc=key.name)
            return Annotated[model, AfterValidator(_values(parts))] if self._reading else model
        as_written = not self._reading or not key.field or key.form == "or_null"
        hint = key.attribute.hint if as_written else attribute(kind, key.field).hint
        return self._columns(get_args(hint)[0]) if key.form == "columns" else self.of(hint)

    def _field(self, kind: type, key: Key) -> Any:
        settings: dict[str, Any] = {"alias": key.name, "description": key.attribute.describe() or None}
        if self._reading:
            settings |= _default(kind, key.field)
        elif key.form == "if_any":
            settings["default_factory"] = lambda: None  # A default would be described, too.
        return Field(**settings)

    def _columns(self, row: type) -> Any:
        parts = self._parts(keys_of(row, self._tables))
        made: dict[str, Any] = {
            name: (list[self.of(key.attribute.hint)], self._field(row, key))  # type: ignore[misc]
            for name, key in parts
        }
        model = create_model(f"{row.__name__}_columns", __module__=row.__module__, __doc__=row.__doc__, **made)
        return Annotated[model, AfterValidator(_rows(row, parts))] if self._reading else model


def _default(kind: type, name: str) -> dict[str, Any]:
    """Return the default of a record's field, as ``pydantic.Field`` takes it."""
    if not is_dataclass(kind):
        defaults = getattr(kind, "_field_defaults", {})
        return {"default": defaults[name]} if name in defaults else {}
    found = {field.name: field for field in fields(kind)}.get(name)
    if found is None:
        return {}
    settings = {"default": found.default, "default_factory": found.default_factory}
    return {setting: value for setting, value in settings.items() if value is not MISSING}


def _builder(kind: type, parts: Sequence[Part]) -> Callable[[BaseModel], Any]:
    values = _values(parts)
    return lambda model: kind(**values(model))


def _values(parts: Sequence[Part]) -> Callable[[BaseModel], dict[str, Any]]:
    """Return what makes a record's fields of a model; an object of further keys has been made into fields before."""

    def values(model: BaseModel) -> dict[str, Any]:
        found: dict[str, Any] = {}
        for name, key in parts:
            if not key.field and key.form != "object":
                continue  # It is checked, and says nothing of the record.
            value = getattr(model, name)
            if key.form == "or_null" and value is None:
                value = without_none(key.attribute.hint)[0]()
            found |= value if key.form == "object" else {key.field: value}
        return found

    return values


def _array(values: list[int]) -> "array[int]":
    try:
        return array("q", values)
    except OverflowError:
        raise ValueError("a number is beyond 64 bits") from None


def _again(content: Any) -> Any:
    """Add an object to itself: the record that is spread is read from all of its keys."""
    return {**content, "": content} if isinstance(content, Mapping) else content


def _records_in(hint: Any) -> Iterator[type]:
    if is_record(hint):
        yield hint
    for argument in get_args(hint):
        yield from _records_in(argument)


def _rows(kind: type, parts: Sequence[Part]) -> Callable[[BaseModel], tuple[Any, ...]]:
    by_field = {key.field: name for name, key in parts}
    names = [by_field[field] for field in types_of(kind)]

    def rows(model: BaseModel) -> tuple[Any, ...]:
        columns = [getattr(model, name) for name in names]
        if len({len(column) for column in columns}) > 1:
            raise ValueError(f"the columns {', '.join(key.name for _, key in parts)} differ in length")
        return tuple(starmap(kind, zip(*columns, strict=True)))

    return rows
