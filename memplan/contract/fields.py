"""What a record says of its own fields: their types and the docstrings under them."""

import ast
import inspect
import textwrap
from collections.abc import Callable, Mapping
from dataclasses import fields, is_dataclass
from functools import cache
from itertools import pairwise
from operator import attrgetter
from types import NoneType, UnionType
from typing import Annotated, Any, NamedTuple, Union, get_args, get_origin, get_type_hints

LIMITS = "limits"
"""Key of a field's metadata: what its value must be beyond its type, as ``annotated_types`` has it."""


class Attribute(NamedTuple):
    """A field or property that is read from a record."""

    hint: Any
    """Its type."""
    describe: Callable[[], str]
    """Returns its docstring; only a schema needs it, and looking it up reads the source."""
    get: Callable[[Any], Any]
    """Reads it; of a path, None where any part of the way is None."""


class Array:
    """Stands for ``array.array`` in types: that takes no arguments before Python 3.12."""

    def __class_getitem__(cls, _: type) -> type["Array"]:
        """Return the class itself: all arrays hold integers."""
        return cls


def is_record(hint: object) -> bool:
    """Return whether a type is a frozen dataclass or a named tuple, which stand as objects in JSON."""
    return isinstance(hint, type) and (is_dataclass(hint) or (issubclass(hint, tuple) and hasattr(hint, "_fields")))


def attribute(kind: type, path: str) -> Attribute:
    """Look up a field or property of a record; a path may lead through other records (``problem.capacity``)."""
    name, _, rest = path.partition(".")
    hints = types_of(kind)
    if name in hints:
        first = Attribute(hints[name], lambda: descriptions(kind).get(name, ""), attrgetter(name))
    else:
        first = returned(getattr(kind, name).fget)._replace(get=attrgetter(name))
    if not rest:
        return first
    inner_kind, optional = without_none(first.hint)
    inner = attribute(inner_kind, rest)

    def through(record: Any) -> Any:
        found = first.get(record)
        return None if found is None else inner.get(found)

    return Attribute(inner.hint | None if optional else inner.hint, inner.describe, through)


def returned(function: Callable[[Any], Any]) -> Attribute:
    """Describe what a function of a record returns, by its annotation and docstring."""
    hint = get_type_hints(function)["return"]
    return Attribute(hint, lambda: (inspect.getdoc(function) or "").partition("\n\n")[0], function)


def without_none(hint: Any) -> tuple[Any, bool]:
    """Return a type without its ``None``, and whether it had one."""
    members = alternatives(hint)
    kept = [member for member in members if member is not NoneType]
    return (Union[tuple(kept)] if kept else NoneType), len(kept) < len(members)  # noqa: UP007 - of a list.


def alternatives(hint: Any) -> tuple[Any, ...]:
    """Return the members of a union; of another type, the type itself."""
    return get_args(hint) if get_origin(hint) in (Union, UnionType) else (hint,)


@cache
def types_of(kind: type) -> Mapping[str, Any]:
    """Return the type of each field, with its limits."""
    hints = get_type_hints(kind, localns={"array": Array}, include_extras=True)
    limits = {field.name: field.metadata.get(LIMITS, ()) for field in fields(kind)} if is_dataclass(kind) else {}
    return {name: Annotated[hint, *limits[name]] if limits.get(name) else hint for name, hint in hints.items()}


@cache
def descriptions(kind: type) -> Mapping[str, str]:
    """Return the docstring under each field that has one, inherited ones included."""
    found: dict[str, str] = {}
    for base in reversed(kind.__mro__):
        if is_record(base):
            body = ast.parse(textwrap.dedent(inspect.getsource(base))).body[0]
            found |= _docstrings(body.body) if isinstance(body, ast.ClassDef) else {}
    return found


def _docstrings(body: list[ast.stmt]) -> dict[str, str]:
    found = {}
    for field, below in pairwise(body):
        match field, below:
            case ast.AnnAssign(target=ast.Name(id=name)), ast.Expr(value=ast.Constant(value=str(text))):
                found[name] = inspect.cleandoc(text)
            case _:
                pass
    return found
