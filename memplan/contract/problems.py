"""Says what is wrong with plain data: where, what belongs there by the schema, and what stands there instead."""

import difflib
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from pydantic import ValidationError

Schema = Mapping[str, Any]
_SHOWN = 40
"""Characters of a wrong value."""


def problems(error: ValidationError, schema: Schema) -> list[str]:
    """Return a line for each place that is wrong."""
    found = dict.fromkeys(_problem(problem, schema) for problem in error.errors(include_url=False))
    # Of a union, the member that was read furthest says more than those that are of another kind.
    inner = {place for place, _ in found}
    return [
        f"{place or 'it'}: {wrong}"
        for place, wrong in found
        if not any(other.startswith((f"{place}.", f"{place}[")) for other in inner)
    ]


def _problem(problem: Mapping[str, Any], schema: Schema) -> tuple[str, str]:
    """Return where it is, and what."""
    place, nodes = "", list(_alternatives(schema, schema))
    for part in problem["loc"]:
        # Members of a union are parts of pydantic's places, and none of ours; what is spread stands under no key.
        below = [inner for node in nodes for inner in _below(node, part, schema)]
        is_unknown = not below and problem["type"] == "extra_forbidden" and part == problem["loc"][-1]
        if part != "" and (below or is_unknown):
            place += f"[{part}]" if isinstance(part, int) else f".{part}"
        nodes = below or nodes
    return place.lstrip("."), _wrong(problem, nodes)


def _wrong(problem: Mapping[str, Any], nodes: Sequence[Schema]) -> str:
    match problem["type"]:
        case "missing":
            return "missing"
        case "extra_forbidden":
            known = dict.fromkeys(key for node in nodes for key in node.get("properties", ()))
            near = difflib.get_close_matches(str(problem["loc"][-1]), known, n=1)
            return "unknown key" + (f"; did you mean {near[0]}?" if near else "")
        case "value_error":
            return str(problem["ctx"]["error"])
        case _:
            return _misfit(problem, _expected(nodes))


def _misfit(problem: Mapping[str, Any], expected: str) -> str:
    content = problem["input"]
    if not expected:
        return str(problem["msg"]).lower()
    return f"expected {expected}, found {'nothing' if content is None else repr(content)[:_SHOWN]}"


def _below(node: Schema, part: str | int, schema: Schema) -> Iterator[Schema]:
    """Yield what stands at a key or number of a node."""
    if isinstance(part, int):
        fixed = node.get("prefixItems", ())
        found = fixed[part] if part < len(fixed) else node.get("items")
    else:
        found = node.get("properties", {}).get(part, node.get("additionalProperties"))
    if isinstance(found, Mapping):
        yield from _alternatives(found, schema)


def _alternatives(node: Schema, schema: Schema) -> Iterator[Schema]:
    """Yield the kinds of value that a node takes, but null."""
    if "$ref" in node:
        yield from _alternatives(schema["$defs"][node["$ref"].rpartition("/")[2]], schema)
    elif members := node.get("anyOf") or node.get("oneOf"):
        for member in members:
            yield from _alternatives(member, schema)
    elif node.get("type") != "null":
        yield node


def _expected(nodes: Sequence[Schema]) -> str:
    objects = [node for node in nodes if node.get("type") == "object"]
    if len(objects) > 1 and len(objects) == len(nodes):
        return f"an object with one of {', '.join(next(iter(node['properties']), '') for node in objects)}"
    return " or ".join(dict.fromkeys(filter(None, map(_words, nodes))))


def _words(node: Schema) -> str:
    if words := node.get("enum", [node["const"]] if "const" in node else ()):
        return f"{'one of ' if len(words) > 1 else ''}{', '.join(map(str, words))}"
    match node.get("type"):
        case "integer" | "number" as kind:
            return ("a whole number" if kind == "integer" else "a number") + _limits(node)
        case "string":
            return "text" + "".join(f" such as {example!r}" for example in node.get("examples", ()))
        case "array":
            return "a list" + (f" of at least {least}" if (least := node.get("minItems")) else "")
        case kind:
            return _PLAIN.get(kind, "")


_PLAIN: Mapping[Any, str] = {"boolean": "true or false", "object": "an object"}
_LIMITS = {"minimum": "of at least", "exclusiveMinimum": "above", "maximum": "of at most", "exclusiveMaximum": "below"}


def _limits(node: Schema) -> str:
    found = [f"{words} {node[limit]:g}" for limit, words in _LIMITS.items() if limit in node]
    return f" {' and '.join(found)}" if found else ""
