"""Where a name of a module comes from: ``model.py:14``."""

import ast
from collections.abc import Iterable, Iterator
from pathlib import Path
from types import ModuleType

from memplan.files.syntax import parse_source
from memplan.job.usercode import display


def file_of(module: ModuleType) -> str:
    """The module's file as messages show it; its name if it has none (built in)."""
    return display(module.__file__) if module.__file__ else module.__name__


def place(module: ModuleType, name: str) -> str:
    """``file:line`` of the statement that gives a module its name; without the line if there is none."""
    try:
        body = parse_source(Path(module.__file__ or "").read_bytes()).body
    except (OSError, SyntaxError):
        return file_of(module)
    lines = [statement.lineno for statement in _flat(body) if name in _bound_names(statement)]
    return f"{file_of(module)}:{lines[-1]}" if lines else file_of(module)


def _flat(body: Iterable[ast.AST]) -> Iterator[ast.stmt]:
    """Statements at module level, those inside ``if``, ``try``, ``with`` and loops included."""
    for node in body:
        if isinstance(node, ast.stmt):
            yield node
        if not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef | ast.expr):
            yield from _flat(ast.iter_child_nodes(node))


def _bound_names(statement: ast.stmt) -> set[str]:
    """Names that a statement binds by itself."""
    match statement:
        case ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name) | ast.ClassDef(name=name):
            return {name}
        case ast.Import(names=names) | ast.ImportFrom(names=names):
            return {alias.asname or alias.name for alias in names}
        case ast.Assign(targets=targets):
            return {node.id for target in targets for node in ast.walk(target) if isinstance(node, ast.Name)}
        case ast.AnnAssign(target=ast.Name(id=name)):
            return {name}
        case _:
            return set()
