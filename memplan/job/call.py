"""Calls on the command line: ``Net(dim=512)``, ``GPT(config=package.module:Config(n_layer=12))``.

They are read as data and never evaluated: each argument is a literal, a name that is looked up, or another such call.
"""

import ast
import importlib
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from types import ModuleType
from typing import Any

from memplan.errors import UsageError

FORM = "write Net(dim=512, config=package.module:Config(n_layer=12)): literals, names and such calls"

_STRINGS_AND_COLONS = re.compile(
    r"""('(?:\\.|[^'\\])*'|"(?:\\.|[^"\\])*")|([^\W\d]\w*(?:\.[^\W\d]\w*)*)\s*::?\s*(?=[^\W\d])"""
)
_IN = "\u01c0"
"""A letter that nobody writes stands for the dots and the colon of a module, which Python's grammar would not take."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Name:
    """A name, to be looked up; what it names may be called."""

    module: str | None = None
    """Where to look; None: in the target's own module."""
    path: tuple[str, ...]
    """``("nn", "GELU")`` of ``nn.GELU``."""
    is_called: bool = False
    """Is it a call?"""
    arguments: tuple[Any, ...] = ()
    """Positional arguments: plain data, and names."""
    keywords: Mapping[str, Any] = field(default_factory=dict)
    """Keyword arguments."""

    def __str__(self) -> str:
        """The dotted name, without arguments."""
        return ".".join(self.path)


def parse_call(text: str) -> Name:
    """Read a name or a call: what stands behind the colon of a target.

    Raises:
        UsageError: It is neither, or an argument is no literal, name or call.
    """
    try:
        node = ast.parse(_STRINGS_AND_COLONS.sub(_joined, text), mode="eval").body
        read = _value(node)
    except (SyntaxError, ValueError, RecursionError) as error:
        reason = error.msg if isinstance(error, SyntaxError) else error
        raise UsageError(f"'{text}' is no name and no call: {reason}", hint=FORM) from error
    if not isinstance(read, Name):
        raise UsageError(f"'{text}' is no name and no call", hint=FORM)
    return read


def resolve(value: Any, module: ModuleType) -> Any:
    """Look up the names in what ``parse_call`` read, bare ones in a module, and make the calls.

    Raises:
        UsageError: A name is nowhere.
    """
    match value:
        case Name():
            named = look_up(value, module)
            if not value.is_called:
                return named
            arguments = [resolve(each, module) for each in value.arguments]
            return named(*arguments, **{name: resolve(each, module) for name, each in value.keywords.items()})
        case list() | tuple() | frozenset():
            return type(value)(resolve(each, module) for each in value)
        case dict():
            return {key: resolve(each, module) for key, each in value.items()}
        case _:
            return value


def look_up(name: Name, module: ModuleType) -> Any:
    """Return what a name names, uncalled."""
    place: Any = module
    if name.module is not None:
        try:
            place = importlib.import_module(name.module)
        except ModuleNotFoundError as error:
            raise UsageError(f"there is no module '{error.name}'", where=f"{name.module}:{name}") from error
    for part in name.path:
        if not hasattr(place, part):
            raise UsageError(f"{getattr(place, '__name__', place)} has no '{part}'", where=str(name), hint=FORM)
        place = getattr(place, part)
    return place


def _joined(match: re.Match[str]) -> str:
    text, module = match.groups()
    return str(text) if module is None else f"{module.replace('.', _IN)}{_IN}."


def _value(node: ast.expr) -> Any:
    """Plain data, names and calls of a syntax tree."""
    match node:
        case ast.Call():
            return _called(node)
        case ast.Name(id=name):
            return _named(name)
        case ast.Attribute(value=inner, attr=name):
            before = _uncalled(inner)
            return Name(module=before.module, path=(*before.path, name))
        case ast.List(elts=parts) | ast.Tuple(elts=parts) | ast.Set(elts=parts):
            return _COLLECTIONS[type(node)](_value(each) for each in parts)
        case ast.Dict(keys=keys, values=values):
            return {ast.literal_eval(key): _value(each) for key, each in zip(keys, values, strict=True) if key}
        case _:
            return ast.literal_eval(node)


_COLLECTIONS: Mapping[type, Any] = {ast.List: list, ast.Tuple: tuple, ast.Set: frozenset}


def _called(node: ast.Call) -> Name:
    name = _uncalled(node.func)
    if any(each.arg is None for each in node.keywords):
        raise ValueError("** has nothing to unpack")
    given = {str(each.arg): _value(each.value) for each in node.keywords}
    return Name(
        module=name.module, path=name.path, is_called=True, arguments=tuple(map(_value, node.args)), keywords=given
    )


def _uncalled(node: ast.expr) -> Name:
    name = _value(node)
    if not isinstance(name, Name) or name.is_called:
        raise ValueError("only names have attributes and can be called")
    return name


def _named(name: str) -> Name:
    module, joint, _ = name.rpartition(_IN)
    return Name(module=module.replace(_IN, "."), path=()) if joint else Name(path=(name,))
