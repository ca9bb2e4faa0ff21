"""One source text as a tree that can be asked: what is this called, where does it stand, what does it get?

Nothing is imported and nothing is run. Names are resolved as far as one file tells: imports, aliases, assignments of
one scope in the order of their lines. Flow through branches and between functions is not followed.
"""

import ast
import re
from bisect import bisect_left
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Any, TypeVar

_Node = TypeVar("_Node", bound=ast.AST)
Function = ast.FunctionDef | ast.AsyncFunctionDef
Loop = ast.For | ast.AsyncFor | ast.While
Scope = Function | ast.Lambda | ast.ClassDef | ast.Module
FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef)
LOOPS = (ast.For, ast.AsyncFor, ast.While)
_SCOPES = (*FUNCTIONS, ast.Lambda, ast.ClassDef, ast.Module)
_TEST = re.compile(r"(?:^|/)(?:test_[^/]*|[^/]*_test|conftest)\.py$|(?:^|/)tests/")
Position = tuple[int, int]


@dataclass(frozen=True, slots=True, kw_only=True)
class Binding:
    """A place where a name gets a value."""

    at: Position
    """Where the statement ends: the name means this from there on."""
    value: ast.expr | None
    """What it gets, or what that is a part of; None: nobody can say from here."""
    node: ast.AST
    """The statement."""
    part: bool = False
    """It gets one part of the value: of a tuple, or of what is iterated over."""


class Code:
    """A parsed source text and what is asked of it. Not thread-safe: answers are kept as they are asked for."""

    def __init__(self, tree: ast.Module, lines: list[str], file: str = "") -> None:
        self.tree = tree
        self.lines = lines
        self.file = file
        self.is_test = _TEST.search(file) is not None
        """A unit test: what it does, it does once, on little data."""
        self.text = "\n".join(lines)
        self._parents: dict[ast.AST, ast.AST] = {}
        self._numbers: dict[ast.AST, int] = {}
        self._ends: dict[ast.AST, int] = {}
        self._scopes: dict[ast.AST, Scope] = {}
        self._statements: dict[ast.AST, ast.AST] = {}
        self._callees: dict[ast.Call, str] = {}
        self._of_type: dict[type[ast.AST], list[ast.AST]] = {}
        self.kept: dict[tuple[str, ast.AST], Any] = {}
        """Question and node → an answer that was worked out before."""
        self._index()

    def _index(self) -> None:
        """Number all nodes in the order of the text; without recursion, for a tree of user code may be deep."""
        order: list[ast.AST] = []
        stack: list[tuple[ast.AST, Scope, ast.AST]] = [(self.tree, self.tree, self.tree)]
        while stack:
            node, scope, around = stack.pop()
            statement = node if isinstance(node, ast.stmt) else around
            self._numbers[node] = len(order)
            self._scopes[node] = scope
            self._statements[node] = statement
            order.append(node)
            self._of_type.setdefault(type(node), []).append(node)
            inner = node if isinstance(node, _SCOPES) else scope
            # What ast.iter_child_nodes does, in a third of its time: this loop is half of all that the audit takes.
            children = []
            for field in node._fields:
                value = getattr(node, field, None)
                if isinstance(value, ast.AST):
                    children.append(value)
                elif isinstance(value, list):
                    children += [each for each in value if isinstance(each, ast.AST)]
            for child in reversed(children):
                self._parents[child] = node
                stack.append((child, inner, statement))
        self._ends = {node: number + 1 for number, node in enumerate(order)}
        for node in reversed(order[1:]):
            parent = self._parents[node]
            self._ends[parent] = max(self._ends[parent], self._ends[node])

    def all(self, *kinds: type[_Node]) -> list[_Node]:
        """Every node of these types, those of one type in the order of the text."""
        return [node for kind in kinds for node in self._of_type.get(kind, ())]  # type: ignore[misc]

    @property
    def functions(self) -> list[Function]:
        """Every ``def``, plain ones first."""
        return [*self.all(ast.FunctionDef), *self.all(ast.AsyncFunctionDef)]

    # What a thing is called.

    @cached_property
    def imports(self) -> dict[str, str]:
        """Local name → qualified name, of every import anywhere in the file."""
        found: dict[str, str] = {}
        for each in self.all(ast.Import):
            for alias in each.names:
                found[alias.asname or alias.name.partition(".")[0]] = (
                    alias.name if alias.asname else alias.name.partition(".")[0]
                )
        for part in self.all(ast.ImportFrom):
            package = "." * part.level + (part.module or "")
            found |= {alias.asname or alias.name: f"{package}.{alias.name}" for alias in part.names}
        return found

    def dotted(self, node: ast.AST | None) -> str:
        """``self.model`` as it is written; empty for what is no chain of names."""
        parts: list[str] = []
        while isinstance(node, ast.Attribute):
            parts.append(node.attr)
            node = node.value
        if not isinstance(node, ast.Name):
            return ""
        return ".".join([node.id, *reversed(parts)])

    def qualified(self, node: ast.AST | None) -> str:
        """``F.cross_entropy`` → ``torch.nn.functional.cross_entropy``; what was not imported stays as it is written."""
        head, dot, rest = self.dotted(node).partition(".")
        return self.imports.get(head, head) + dot + rest

    def callee(self, node: ast.AST | None) -> str:
        """Qualified name of what a call calls; empty for anything else."""
        if not isinstance(node, ast.Call):
            return ""
        name = self._callees.get(node)
        if name is None:
            name = self._callees[node] = self.qualified(node.func)
        return name

    # Where it stands.

    def adopt(self, node: ast.expr, parent: ast.AST) -> ast.expr:
        """Give a node that stands for what the text only implies its place in the tree."""
        self._parents[node] = parent
        return node

    def column(self, line: int, offset: int) -> int:
        """Characters before a place that ``ast`` counts in bytes of UTF-8."""
        text = self.lines[line - 1] if 0 < line <= len(self.lines) else ""
        return offset if text.isascii() else len(text.encode()[:offset].decode(errors="replace"))

    def parent(self, node: ast.AST) -> ast.AST | None:
        """What it is a direct part of."""
        return self._parents.get(node)

    def above(self, node: ast.AST) -> Iterator[ast.AST]:
        """What it is a part of, from the inside."""
        while (parent := self._parents.get(node)) is not None:
            yield parent
            node = parent

    def scope(self, node: ast.AST) -> Scope:
        """The function, lambda, class or module whose names it speaks of; of a definition: that around it."""
        known = self._scopes.get(node)
        return (
            known
            if known is not None
            else next((each for each in self.above(node) if isinstance(each, _SCOPES)), self.tree)
        )

    def function(self, node: ast.AST) -> Function | None:
        """The innermost ``def`` around it."""
        return next((each for each in self.above(node) if isinstance(each, FUNCTIONS)), None)

    def class_of(self, node: ast.AST) -> ast.ClassDef | None:
        """The innermost class around it."""
        return next((each for each in self.above(node) if isinstance(each, ast.ClassDef)), None)

    def statement(self, node: ast.AST) -> ast.stmt:
        """The statement that it is a part of, itself included."""
        known = self._statements.get(node, node)
        if isinstance(known, ast.stmt):
            return known
        return next(each for each in self.above(node) if isinstance(each, ast.stmt))

    def loops(self, node: ast.AST) -> list[Loop]:
        """Loops of its own scope whose body it stands in, from the inside."""
        found: list[Loop] = []
        if isinstance(self._scopes.get(node), ast.Lambda):
            return found
        # An expression of a loop's own stands in its head: the search begins at the statement, however deep it is.
        child = self._statements.get(node, node)
        for each in self.above(child):
            if isinstance(each, _SCOPES):
                break
            if isinstance(each, LOOPS) and child not in _head(each) and child not in each.orelse:
                found.append(each)
            child = each
        return found

    def inside(self, node: ast.AST, *kinds: type[ast.AST]) -> Iterator[ast.AST]:
        """Nodes of these types within it, those of nested functions and classes left out."""
        own = node if isinstance(node, _SCOPES) else self.scope(node)
        first, end = self._numbers.get(node, 0) + 1, self._ends.get(node, 0)
        found: list[ast.AST] = []
        for kind in kinds:
            known = self._of_type.get(kind, [])
            begin = bisect_left(known, first, key=self._numbers.__getitem__)
            stop = bisect_left(known, end, key=self._numbers.__getitem__)
            found += [each for each in known[begin:stop] if self._scopes[each] is own]
        return iter(sorted(found, key=self._numbers.__getitem__) if len(kinds) > 1 else found)

    def calls(self, node: ast.AST) -> Iterator[ast.Call]:
        """Calls within it, those of nested functions left out."""
        for each in self.inside(node, ast.Call):
            assert isinstance(each, ast.Call)  # noqa: S101 - asked for
            yield each

    # What is bound to a name.

    def bindings(self, scope: ast.AST) -> dict[str, list[Binding]]:
        """Dotted name → its bindings in a scope, in the order of the text."""
        if ("bindings", scope) not in self.kept:
            found: dict[str, list[Binding]] = {}
            for name, binding in _bound(self, scope):
                found.setdefault(name, []).append(binding)
            self.kept["bindings", scope] = {name: sorted(each, key=lambda one: one.at) for name, each in found.items()}
        bindings: dict[str, list[Binding]] = self.kept["bindings", scope]
        return bindings

    def binding(self, node: ast.expr, name: str = "") -> Binding | None:
        """The last binding, in its scope and before it, of the name that it is."""
        name = name or self.dotted(node)
        known = self.bindings(self.names_scope(node)).get(name, [])
        index = bisect_left(known, (node.lineno, node.col_offset), key=lambda each: each.at)
        return known[index - 1] if index else None

    def names_scope(self, node: ast.AST) -> Scope:
        """The scope whose names a function's statements use: never a class, and what stands around a lambda."""
        statement = self._statements.get(node, node)
        if statement is not node and isinstance(statement, FUNCTIONS):
            return statement
        return next((each for each in self.above(statement) if isinstance(each, (*FUNCTIONS, ast.Module))), self.tree)


def _head(loop: Loop) -> tuple[ast.AST, ...]:
    return (loop.test,) if isinstance(loop, ast.While) else (loop.iter, loop.target)


def _bound(code: Code, scope: ast.AST) -> Iterator[tuple[str, Binding]]:
    kinds = (
        ast.Assign, ast.AnnAssign, ast.AugAssign, ast.NamedExpr, ast.For, ast.AsyncFor, ast.withitem, ast.Delete,
        ast.comprehension,
    )  # fmt: skip
    for node in code.inside(scope, *kinds):
        match node:
            case ast.Assign(targets=targets, value=value):
                pairs: list[tuple[ast.expr, ast.expr | None]] = [(target, value) for target in targets]
                at = _end(node)
            case ast.AnnAssign(target=target, value=value) if value is not None:
                pairs, at = [(target, value)], _end(node)
            case ast.NamedExpr(target=target, value=value):
                pairs, at = [(target, value)], _end(value)
            case ast.AugAssign(target=target, value=value):
                old = code.adopt(ast.copy_location(ast.BinOp(left=target, op=node.op, right=value), node), node)
                pairs, at = [(target, old)], _end(node)
            case ast.For(target=target, iter=value) | ast.AsyncFor(target=target, iter=value):
                yield from _parts(code, target, Binding(at=_end(value), value=value, node=node, part=True))
                continue
            case ast.withitem(optional_vars=target, context_expr=value) if target is not None:
                pairs, at = [(target, value)], _end(target)
            case ast.Delete(targets=targets):
                pairs, at = [(target, None) for target in targets], _end(node)
            case _:
                continue
        for target, value in pairs:
            yield from _targets(code, target, value, node, at)


def _targets(
    code: Code, target: ast.expr, value: ast.expr | None, node: ast.AST, at: Position
) -> Iterator[tuple[str, Binding]]:
    if isinstance(target, ast.Tuple | ast.List):
        values = value.elts if isinstance(value, ast.Tuple | ast.List) else None
        if values is not None and len(values) == len(target.elts):
            for one, its in zip(target.elts, values, strict=True):
                yield from _targets(code, one, its, node, at)
            return
        yield from _parts(code, target, Binding(at=at, value=value, node=node, part=True))
        return
    yield from _parts(code, target, Binding(at=at, value=value, node=node))


def _parts(code: Code, target: ast.expr, binding: Binding) -> Iterator[tuple[str, Binding]]:
    if isinstance(target, ast.Tuple | ast.List):
        for each in target.elts:
            yield from _parts(code, each, binding)
    elif isinstance(target, ast.Starred):
        yield from _parts(code, target.value, binding)
    elif name := code.dotted(target):
        yield name, binding


def _end(node: ast.AST) -> Position:
    return getattr(node, "end_lineno", 0) or 0, getattr(node, "end_col_offset", 0) or 0
