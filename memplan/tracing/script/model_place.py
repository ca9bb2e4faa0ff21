"""Where a program has its model: the variable that holds it, and the statement after which it is there."""

import ast
import inspect
from collections.abc import Callable
from pathlib import Path
from types import FrameType, ModuleType

from torch import nn

from memplan.errors import MemplanError
from memplan.files.read import read_bytes
from memplan.files.syntax import parse_source
from memplan.job.usercode import display, is_user_file
from memplan.runtime.checkpoint.blocks import bare
from memplan.tracing.records import ModelPlace

SeenModel = Callable[[nn.Module, ModelPlace | None], None]
"""Told which model is trained, and where a program has it; the model of a target has no place."""


def place_of(model: nn.Module, frame: FrameType | None) -> ModelPlace:
    """Find where the program that called from a frame made its model: in its outermost function that has it."""
    place = ModelPlace(expression="", line="")
    while frame is not None:
        if is_user_file(frame.f_code.co_filename):
            expression = _expression(model, frame)
            end = _assigned(expression.partition(".")[0], frame) if expression else None
            if end is not None:
                place = ModelPlace(expression=expression, line=f"{display(frame.f_code.co_filename)}:{end}")
            elif expression and not place.expression:
                place = ModelPlace(expression=expression, line="")
        frame = frame.f_back
    return place


def _expression(model: nn.Module, frame: FrameType) -> str:
    """Return how the code of a frame can call a model; empty where it cannot."""
    held = frame.f_locals
    try:
        if name := next((name for name, value in held.items() if _is(value, model)), ""):
            return name
        for name, value in held.items():
            inside = {} if isinstance(value, ModuleType) else getattr(value, "__dict__", {})
            for inner, part in inside.items():
                if _is(part, model):
                    return f"{name}.{inner}"
        return ""
    finally:
        if frame.f_code.co_flags & inspect.CO_OPTIMIZED and isinstance(held, dict):
            # Up to Python 3.12 the frame keeps this copy of its variables, and with it what they hold.
            held.clear()


def _is(value: object, model: nn.Module) -> bool:
    return isinstance(value, nn.Module) and bare(value) is model


def _assigned(name: str, frame: FrameType) -> int | None:
    """The last line of the statement that last gave a variable its value before a frame's line, compiling aside."""
    try:
        tree = parse_source(read_bytes(Path(frame.f_code.co_filename)))
    except (MemplanError, OSError, SyntaxError, ValueError):
        return None
    scope = _scope(tree, frame)
    ends = [
        node.end_lineno or node.lineno
        for node in ast.walk(scope)
        if isinstance(node, ast.Assign | ast.AnnAssign)
        and node.lineno < frame.f_lineno
        and name in _names(node)
        and not _compiles(node.value)
    ]
    return max(ends, default=None)


def _scope(tree: ast.Module, frame: FrameType) -> ast.AST:
    """The function whose code a frame runs; the module where it runs that."""
    first = frame.f_code.co_firstlineno
    functions = (node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef))
    begins = {min([node.lineno, *(each.lineno for each in node.decorator_list)]): node for node in functions}
    return begins.get(first, tree) if frame.f_code.co_name != "<module>" else tree


def _names(node: ast.Assign | ast.AnnAssign) -> set[str]:
    targets = node.targets if isinstance(node, ast.Assign) else [node.target]
    return {each.id for target in targets for each in ast.walk(target) if isinstance(each, ast.Name)}


def _compiles(value: ast.expr | None) -> bool:
    """Does a statement compile what it assigns? Blocks of a compiled model cannot be planned any more."""
    return isinstance(value, ast.Call) and ast.unparse(value.func).endswith("compile")
