"""Which items of a batch does a target's ``loss(output, batch)`` read?

Found in its source, since it must be known before the first forward: what the loss reads is no input of the model
unless ``forward`` cannot do without it.
"""

import ast
import inspect
import textwrap
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from memplan.files.syntax import parse_source

Place = int | slice | str
"""Places in a batch, as an index, a slice or an attribute (of a named tuple)."""
LossItems = tuple[Place, ...]
"""All places that a loss reads."""
EVERYTHING: LossItems = (slice(None),)
"""Of a loss that hands the batch on, or whose source is not to be had."""


def loss_items(loss: Callable[..., Any]) -> LossItems:
    """The places that a loss reads of its second argument.

    Returns:
        ``batch[1]``, ``batch[1:]``, ``batch.labels`` and what is taken apart into names that are used; everything where
        the batch is used as a whole.
    """
    function = _function(inspect.unwrap(loss))
    if function is None or len(function.args.posonlyargs + function.args.args) < 2:
        return EVERYTHING
    batch = (function.args.posonlyargs + function.args.args)[1].arg
    return tuple(_uses(function, batch))


def places(items: LossItems, batch: Sequence[object]) -> frozenset[int]:
    """Indices of a batch that a loss reads."""
    everything, names = range(len(batch)), getattr(type(batch), "_fields", ())
    found: set[int] = set()
    for item in items:
        if isinstance(item, slice):
            found.update(everything[item])
        elif isinstance(item, str):
            found.update([names.index(item)] if item in names else everything)
        elif -len(batch) <= item < len(batch):
            found.add(everything[item])
    return frozenset(found)


def _function(function: Callable[..., Any]) -> ast.FunctionDef | ast.Lambda | None:
    """Its syntax, if its source is at hand and holds no other that it could be."""
    if not inspect.isfunction(function):
        return None
    try:
        tree = parse_source(textwrap.dedent(inspect.getsource(function)))
    except (OSError, TypeError, SyntaxError):
        return None
    kind = ast.Lambda if function.__name__ == "<lambda>" else ast.FunctionDef
    found = [node for node in ast.walk(tree) if isinstance(node, kind)]
    return found[0] if found and (len(found) == 1 or kind is ast.FunctionDef) else None


def _uses(function: ast.FunctionDef | ast.Lambda, batch: str) -> Iterator[Place]:
    above = {below: node for node in ast.walk(function) for below in ast.iter_child_nodes(node)}
    names = [node for node in ast.walk(function) if isinstance(node, ast.Name)]
    used = {name.id for name in names if isinstance(name.ctx, ast.Load)}
    for name in (name for name in names if name.id == batch):
        match above[name]:
            case ast.Subscript(slice=index, ctx=ast.Load()) if name is not index:
                yield _constant(index)
            case ast.Attribute(attr=attribute, ctx=ast.Load()):
                yield attribute
            case ast.Assign(targets=[ast.Tuple(elts=parts) | ast.List(elts=parts)], value=value) if name is value:
                yield from _taken_apart(parts, used)
            case _:
                yield slice(None)


def _constant(index: ast.expr) -> Place:
    try:
        if isinstance(index, ast.Slice):
            return slice(*(part and ast.literal_eval(part) for part in (index.lower, index.upper, index.step)))
        value = ast.literal_eval(index)
    except ValueError:
        value = None
    return value if isinstance(value, int | str) else slice(None)


def _taken_apart(parts: list[ast.expr], used: set[str]) -> Iterator[Place]:
    """``x, (y, z), *rest = batch``: what of it has a name that is used."""
    stars = [place for place, part in enumerate(parts) if isinstance(part, ast.Starred)]
    for place, part in enumerate(parts):
        if not used & {node.id for node in ast.walk(part) if isinstance(node, ast.Name)}:
            continue
        after = place - len(parts)
        if isinstance(part, ast.Starred):
            yield slice(place, after + 1 or None)
        else:
            yield after if stars and place > stars[0] else place
