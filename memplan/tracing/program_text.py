"""What hangs on an answer that only data could give, read from the text of the program that asks for it.

A condition that ends a program, a function or a loop is asked of data to catch what is exceptional, or to stop what
has gone on for long enough. Where nobody knows the data, the text around the question says which answer that would be.
"""

import ast
import dataclasses
import dis
import linecache
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from types import CodeType, FrameType
from typing import Literal

from memplan.files.syntax import parse_source
from memplan.tracing.heard import Place

Kind = Literal["failure", "exit", "loop", "choice"]
"""What an answer decides: whether the program fails; whether it leaves a function or a loop; whether a ``while`` goes
on; or which way it takes."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Question:
    """A place in a program that asks data."""

    file: str
    function: str
    line: int
    column: int
    kind: Kind = "choice"
    """What hangs on it."""
    leaves_on: bool | None = None
    """The answer that fails, leaves or ends; None where neither does."""
    endless: bool = False
    """Does a loop end only by this answer?"""
    is_compared: bool = False
    """Is it a number that is compared with another one?"""
    is_whole: bool = False
    """Is it made a whole number at once (``int(x)``, ``round(x * 2)``)?"""
    is_more: bool = False
    """Does it ask whether one number is more than another (``loss_new > loss``)?"""
    in_while: bool = False
    """Does a ``while`` loop of the same function go round it, and is it asked in so many words (``float(x)``)?"""

    @property
    def place(self) -> Place:
        """Where it is asked."""
        return self.file, self.line, self.column


def question(frame: FrameType) -> Question:
    """The question that a frame is asking now."""
    return _question(frame.f_code, frame.f_lasti)


@cache
def _question(code: CodeType, instruction: int) -> Question:
    line, end_line, column, end_column = _position(code, instruction)
    at = Question(file=code.co_filename, function=code.co_name, line=line, column=column)
    tree = _tree(code.co_filename)
    if tree is None or not line:
        return at
    path = _path(tree, (line, column), (end_line, end_column))
    is_more = isinstance(path[-1], ast.Compare) and isinstance(path[-1].ops[0], ast.Gt | ast.GtE)
    found = dataclasses.replace(_judged(at, path), is_more=is_more)
    return dataclasses.replace(found, in_while=_is_read_in_while(path), is_whole=_is_made_whole(path))


def _position(code: CodeType, instruction: int) -> tuple[int, int, int, int]:
    """Line, last line, column and last column of the expression that is asked."""
    places = list(code.co_positions())
    index = instruction // 2
    if "JUMP" in dis.opname[code.co_code[instruction]]:
        # A jump stands for the whole statement; what it tests is what the instruction before it has made.
        index -= 1
    line, end_line, column, end_column = (number or 0 for number in places[index])
    return line, end_line, column, end_column


@cache
def _tree(filename: str) -> ast.Module | None:
    try:
        return parse_source("".join(linecache.getlines(filename)))
    except (SyntaxError, ValueError, RecursionError):
        return None


def _path(tree: ast.AST, start: tuple[int, int], end: tuple[int, int]) -> list[ast.AST]:
    """Nodes from the module down to the innermost one that holds a stretch of text."""
    path = [tree]
    while True:
        inner = next((child for child in _located(path[-1]) if _holds(child, start, end)), None)
        if inner is None:
            return path
        path.append(inner)


def _located(node: ast.AST) -> Iterator[ast.AST]:
    for child in ast.iter_child_nodes(node):
        if hasattr(child, "lineno"):
            yield child
        else:
            # Such as the arguments of a function or the generators of a comprehension, which have no place themselves.
            yield from _located(child)


def _holds(node: ast.AST, start: tuple[int, int], end: tuple[int, int]) -> bool:
    first, last = (node.lineno, node.col_offset), (node.end_lineno, node.end_col_offset)  # type: ignore[attr-defined]
    return bool(first <= start and end <= last)


# ---------------------------------------------------------------------- what an answer leads to


def _judged(at: Question, path: Sequence[ast.AST]) -> Question:
    """Follow the answer upwards to the statement that tests it."""
    answer, others_end_it = True, False
    if isinstance(path[-1], ast.UnaryOp) and isinstance(path[-1].op, ast.Not):
        # ``bad = not x.any()`` asks within the negation.
        answer = False
    for depth in range(len(path) - 1, 0, -1):
        match path[depth - 1]:
            case ast.UnaryOp(op=ast.Not()):
                answer = not answer
            case ast.BoolOp(op=operator):
                # ``while err > tol and n < 50``: the loop has an end of its own.
                others_end_it |= isinstance(operator, ast.And)
            case ast.Compare(ops=[ast.Is() | ast.Eq()], comparators=[ast.Constant(value=bool(wanted))]):
                answer = answer == wanted
            case ast.NamedExpr():
                pass
            case _:
                return _stated(at, path[: depth + 1], answer, endless=not others_end_it)
    return at


def _stated(at: Question, path: Sequence[ast.AST], answer: bool, *, endless: bool) -> Question:
    """What a statement makes of a condition, which is the last node of the path."""
    node, above = path[-1], path[:-2]
    match path[-2]:
        case ast.Assert(test=test) if test is node:
            return _leaving(at, "failure", not answer)
        case ast.While(test=test) if test is node:
            return _leaving(at, "loop", not answer, endless=endless)
        case ast.If(test=test) as branch if test is node:
            return _of_branch(at, branch, answer, above)
        case ast.Assign(targets=[ast.Name(id=name)]) | ast.AnnAssign(target=ast.Name(id=name)):
            return _of_name(at, name, answer, above)
        case ast.Compare():
            number = dataclasses.replace(at, is_compared=True)
            return _leaving(number, "loop", None, endless=True) if _in_while(above) else number
        case _:
            return at


def _leaving(at: Question, kind: Kind, answer: bool | None, *, endless: bool = False) -> Question:
    return dataclasses.replace(at, kind=kind, leaves_on=answer, endless=endless)


def _of_branch(at: Question, branch: ast.If, answer: bool, above: Sequence[ast.AST]) -> Question:
    body, other = _way_out(branch.body), _way_out(branch.orelse)
    if (body is None) == (other is None):
        return at
    kind: Kind = "failure" if isinstance(body or other, ast.Raise | ast.Expr) else "exit"
    endless = kind == "exit" and _is_endless(above)
    return _leaving(at, kind, answer if body is not None else not answer, endless=endless)


def _way_out(body: Sequence[ast.stmt]) -> ast.stmt | None:
    """The statement by which a branch leaves; None where it runs on."""
    for statement in body:
        match statement:
            case ast.Raise() | ast.Return() | ast.Break() | ast.Continue():
                return statement
            case ast.Expr(value=ast.Call(func=ast.Attribute(attr="exit" | "_exit") | ast.Name(id="exit" | "quit"))):
                return statement
            case _:
                pass
    return None


def _is_endless(above: Sequence[ast.AST]) -> bool:
    """Has the loop around a statement no end of its own (``while True``)?"""
    for node in reversed(above):
        match node:
            case ast.While(test=ast.Constant()):
                return True
            case ast.While() | ast.For() | ast.FunctionDef() | ast.Lambda():
                return False
            case _:
                pass
    return False


def _in_while(above: Sequence[ast.AST]) -> bool:
    child: ast.AST | None = None
    for node in reversed(above):
        if isinstance(node, ast.While):
            return child is None or node.test is child
        if not isinstance(node, ast.expr):
            return False
        child = node
    return False


def _of_name(at: Question, name: str, answer: bool, above: Sequence[ast.AST]) -> Question:
    """An answer that was given a name (``bad = x.isnan().any().item()``) decides where that name is tested first."""
    scope = next((node for node in reversed(above) if isinstance(node, ast.FunctionDef | ast.Module)), None)
    for node in ast.walk(scope) if scope is not None else ():
        is_ahead = isinstance(node, ast.If | ast.Assert) and node.lineno > at.line
        if is_ahead or (isinstance(node, ast.While) and (node.lineno > at.line or node in above)):
            assert isinstance(node, ast.If | ast.While | ast.Assert)  # noqa: S101 - said above; this tells mypy.
            for used in ast.walk(node.test):
                if isinstance(used, ast.Name) and used.id == name:
                    start, end = (used.lineno, used.col_offset), (used.end_lineno or 0, used.end_col_offset or 0)
                    found = _judged(at, _path(scope or node, start, end))
                    return found if answer else _inverted(found)
    return at


def _is_read_in_while(path: Sequence[ast.AST]) -> bool:
    """A number that goes into an op (``alpha=``) ends no loop."""
    match path[-1]:
        case ast.Call(func=ast.Attribute(attr="item" | "tolist") | ast.Name(id="float" | "int" | "bool")):
            return any(isinstance(node, ast.While) for node in path)
        case ast.Call():
            return False
        case _:
            return any(isinstance(node, ast.While) for node in path)


def _is_made_whole(path: Sequence[ast.AST]) -> bool:
    """``int(x)``, ``int(x.item())``, ``math.ceil(2 * float(x))``."""
    for node in reversed(path):
        match node:
            case ast.Call(func=ast.Name(id="int" | "round" | "ceil" | "floor" | "range")):
                return True
            case ast.Call(func=ast.Attribute(attr="ceil" | "floor", value=ast.Name(id="math"))):
                return True
            case ast.Call(func=ast.Attribute(attr="item" | "tolist") | ast.Name(id="float")) | ast.BinOp():
                pass
            case _:
                return False
    return False


def _inverted(found: Question) -> Question:
    return dataclasses.replace(found, leaves_on=None if found.leaves_on is None else not found.leaves_on)
