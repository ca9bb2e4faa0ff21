"""From a node of the tree to a finding, and to the edits that mend it."""

import ast

from memplan.audit.code import FUNCTIONS, Code
from memplan.audit.records import Edit, Hit

_WORDS = 60
"""Characters of an expression that a sentence quotes."""


def hit(code: Code, rule: str, node: ast.AST, message: str, *edits: Edit) -> Hit:
    """A finding at a node; a function or class is meant by its first line."""
    line, offset = node.lineno, node.col_offset  # type: ignore[attr-defined]
    end_line, end_offset = node.end_lineno, node.end_col_offset  # type: ignore[attr-defined]
    if isinstance(node, (*FUNCTIONS, ast.ClassDef, ast.For, ast.With)):
        end_line, end_offset = line, offset
    column, end = code.column(line, offset), code.column(end_line, end_offset)
    if (end_line, end) == (line, column):
        end = max(column + 1, len(code.lines[line - 1].rstrip()) if line <= len(code.lines) else 0)
    return Hit(code=rule, line=line, column=column, end_line=end_line, end_column=end, message=message, edits=edits)


def words(node: ast.AST) -> str:
    """An expression as a sentence quotes it."""
    text = " ".join(ast.unparse(node).split())
    return text if len(text) <= _WORDS else text[: _WORDS - 1] + "…"


def replaced(code: Code, node: ast.AST, text: str) -> Edit:
    """Another text in a node's place."""
    line, end_line = node.lineno, node.end_lineno  # type: ignore[attr-defined]
    return Edit(
        line=line, column=code.column(line, node.col_offset),  # type: ignore[attr-defined]
        end_line=end_line, end_column=code.column(end_line, node.end_col_offset), text=text,  # type: ignore[attr-defined]
    )  # fmt: skip


def after(code: Code, node: ast.AST, text: str) -> Edit:
    """A text behind a node."""
    line, column = node.end_lineno, code.column(node.end_lineno, node.end_col_offset)  # type: ignore[attr-defined]
    return Edit(line=line, column=column, end_line=line, end_column=column, text=text)


def line_before(code: Code, node: ast.AST, text: str) -> Edit:
    """A line above a statement, as far to the right."""
    line = min([node.lineno, *(each.lineno for each in getattr(node, "decorator_list", ()))])  # type: ignore[attr-defined]
    own = code.lines[line - 1]
    indent = own[: len(own) - len(own.lstrip())]
    return Edit(line=line, column=0, end_line=line, end_column=0, text=f"{indent}{text}\n")


def without(code: Code, statement: ast.stmt) -> tuple[Edit, ...]:
    """A statement's line gone, where others stand in its block and it has the line for itself."""
    parent = code.parent(statement)
    block = next(
        (each for each in (getattr(parent, name, None) for name in ("body", "orelse", "finalbody"))
         if isinstance(each, list) and statement in each), []
    )  # fmt: skip
    own = code.lines[statement.lineno - 1 : statement.end_lineno]
    alone = "\n".join(own).strip() == "\n".join(own)[statement.col_offset :].strip() and ";" not in own[-1]
    if len(block) < 2 or not alone or statement.end_lineno is None or statement.end_lineno >= len(code.lines):
        return ()
    return (Edit(line=statement.lineno, column=0, end_line=statement.end_lineno + 1, end_column=0, text=""),)


def detached(code: Code, value: ast.expr) -> tuple[Edit, ...]:
    """``.detach()`` behind a value; in brackets where it is more than a chain of names and calls."""
    if isinstance(value, ast.Name | ast.Attribute | ast.Call | ast.Subscript):
        return (after(code, value, ".detach()"),)
    start = replaced(code, value, "")
    opening = Edit(line=start.line, column=start.column, end_line=start.line, end_column=start.column, text="(")
    return (opening, after(code, value, ").detach()"))


def keyword(call: ast.Call, name: str) -> ast.expr | None:
    """What a call is given by this name."""
    return next((each.value for each in call.keywords if each.arg == name), None)


def constant(node: ast.AST | None) -> object:
    """A literal's value; ``...`` for anything else, which equals nothing that is looked for."""
    return node.value if isinstance(node, ast.Constant) else ...


def forwards_keywords(call: ast.Call) -> bool:
    """``**options`` among its arguments: what is missing may be in there."""
    return any(each.arg is None for each in call.keywords)
