"""One reference as Python would write it: ``.attribute``, ``[index]``, ``.__traceback__``."""

import functools
import queue
from collections import deque
from collections.abc import Iterator, Mapping
from dataclasses import replace
from itertools import pairwise
from types import CellType, FrameType, FunctionType, MethodType, TracebackType, UnionType
from typing import Any

import torch

from memplan.runtime.leaks.heap import _OWN
from memplan.runtime.leaks.records import Link

_PARTS: Mapping[type, tuple[str, ...]] = {
    FunctionType: ("__closure__", "__defaults__", "__kwdefaults__", "__dict__"),
    CellType: ("cell_contents",),
    MethodType: ("__self__", "__func__"),
    TracebackType: ("tb_frame", "tb_next"),
    BaseException: ("__traceback__", "__context__", "__cause__", "args"),
    torch.Tensor: ("grad_fn", "_backward_hooks"),
}
"""Where kinds of objects of C keep references."""
_KEY_CHARACTERS = 24


def is_a(each: Any, kind: type | UnionType) -> bool:
    """``isinstance`` by the type alone: an object's own ``__class__`` may be code that fails."""
    return issubclass(type(each), kind)


def is_scope(holder: Any) -> bool:
    """A frame of this room, which holds whatever is looked at."""
    return is_a(holder, FrameType) and holder.f_code.co_filename.startswith(_OWN)


def links(objects: list[Any]) -> tuple[Link, ...]:
    """How each object holds the next."""
    found: list[Link] = []
    owner: str | None = None  # Of the dict of attributes that comes next.
    for holder, child in pairwise(objects):
        kind, name = next(_ways(holder, child), ("object", f" → {type(child).__qualname__}"))
        each = Link(kind=kind, name=name, holder=type_name(holder), bound=_bound(holder))
        if owner is not None and is_a(holder, dict):
            key = next((key for key, value in dict.items(holder) if value is child), "?")
            each = replace(each, kind="attribute", name=f".{key}", holder=owner)
        owner = each.holder if kind == "attributes" else None
        if kind != "attributes":
            found.append(each)
    return tuple(found)


def type_name(each: Any) -> str:
    """Module and name of a type."""
    kind = type(each)
    return kind.__qualname__ if kind.__module__ == "builtins" else f"{kind.__module__}.{kind.__qualname__}"


def _ways(holder: Any, child: Any) -> Iterator[tuple[str, str]]:
    if is_a(holder, FrameType):
        names = (name for name, value in holder.f_locals.items() if value is child)
        yield from (("frame", f".<{holder.f_code.co_name}>.{name}") for name in names)
    elif is_a(holder, dict):
        yield from _in_dict(holder, child)
    elif is_a(holder, list | tuple | deque):
        yield from (("item", f"[{at}]") for at, value in enumerate(holder) if value is child)
    for kind, parts in _PARTS.items():
        if is_a(holder, kind):
            yield from (("part", f".{part}") for part in parts if _get(holder, part) is child)
    yield from _in_attributes(holder, child)


def _in_dict(holder: dict[Any, Any], child: Any) -> Iterator[tuple[str, str]]:
    for key, value in dict.items(holder):
        if value is child:
            yield "item", f"[{_short(key)}]"
        elif key is child:
            yield "key", ".keys()"


def _in_attributes(holder: Any, child: Any) -> Iterator[tuple[str, str]]:
    attributes = vars(holder) if is_a(holder, type) else _get(holder, "__dict__")
    if attributes is child or (is_a(holder, type) and is_a(child, dict)):
        yield "attributes", ""
    elif attributes is not None and not is_a(holder, FunctionType):
        yield from (("attribute", f".{name}") for name, value in list(attributes.items()) if value is child)
    slots = (name for kind in type(holder).__mro__ for name in _slots(kind))
    yield from (("attribute", f".{name}") for name in slots if _get(holder, name) is child)


def _slots(kind: type) -> tuple[str, ...]:
    slots = kind.__dict__.get("__slots__", ())
    return (slots,) if isinstance(slots, str) else tuple(slots)


def _get(holder: Any, name: str) -> Any:
    """Without the class's own ``__getattr__``, and without what properties would do."""
    try:
        return object.__getattribute__(holder, name)
    except Exception:  # noqa: BLE001 - an object in the making may raise anything; then it shows nothing.
        return None


def _short(key: Any) -> str:
    """A key as Python shows it, where that is cheap and says something."""
    if not is_a(key, str | int | float | bool | tuple | bytes | None):
        return f"<{type(key).__qualname__}>"
    text = repr(key)
    return text if len(text) <= _KEY_CHARACTERS else text[: _KEY_CHARACTERS - 1] + "…"


def _bound(holder: Any) -> int | None:
    """Most items of a container that says so."""
    if is_a(holder, deque):
        return int(holder.maxlen) if holder.maxlen is not None else None
    if is_a(holder, queue.Queue):
        return int(holder.maxsize) if holder.maxsize > 0 else None
    if is_a(holder, functools._lru_cache_wrapper):  # noqa: SLF001 - the type has no other name.
        most: int | None = holder.cache_parameters()["maxsize"]
        return most
    return None
