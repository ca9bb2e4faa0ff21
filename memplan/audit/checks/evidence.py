"""What says that gradients are off, or are needed, though no ``no_grad`` stands around a call of a model."""

import ast

from memplan.audit.code import Code, Function
from memplan.audit.hits import constant, keyword
from memplan.audit.steps import gradients_off
from memplan.audit.values import NO_GRAPH, NO_GRAPH_ATTRIBUTES

_DEPTH = 12
"""Bindings and calls that are followed, one behind the other."""
_PLAIN_BASES = frozenset({"object", "abc.ABC", "torch.nn.Module", "torch.nn.modules.Module", "nn.Module"})
"""Bases that call no method of ours."""
_INDICES = frozenset({"max", "min", "topk", "sort", "median", "mode"})
"""What gives values and indices: a part of it may have no graph."""
_OTHER_RUNTIMES = frozenset({
    "openvino", "onnx", "onnxruntime", "tensorflow", "keras", "jax", "flax", "sklearn", "tensorrt", "coremltools",
    "mlx", "paddle", "xgboost", "lightgbm", "numpy",
})  # fmt: skip
"""Packages whose models record nothing."""


def called_from_elsewhere(code: Code, function: Function) -> bool:
    """A method that a base class of another file may call, and nobody in this one: its caller may hold the no_grad.

    One that detaches what it makes does not count on that.
    """
    holder = code.parent(function)
    if not isinstance(holder, ast.ClassDef):
        return False
    own = {each.name for each in code.all(ast.ClassDef)}
    foreign = [base for base in holder.bases if (name := code.qualified(base)) not in own and name not in _PLAIN_BASES]
    named = any(isinstance(call.func, ast.Attribute) and call.func.attr == function.name for call in code.all(ast.Call))
    detaches = any(isinstance(call.func, ast.Attribute) and call.func.attr == "detach" for call in code.calls(function))
    return bool(foreign) and not named and not detaches


def becomes_numpy(code: Code, function: Function, made: ast.Call) -> bool:
    """``out.numpy()`` without ``detach()`` raises where gradients are on: so they are off."""
    return any(
        isinstance(call.func, ast.Attribute) and call.func.attr == "numpy"
        and constant(keyword(call, "force")) is not True and _carries(code, call.func.value, made)
        for call in code.calls(function)
    )  # fmt: skip


def is_of_another_runtime(code: Code, function: Function, made: ast.Call) -> bool:
    """Its outputs go through ``torch.from_numpy``, or its parameter's annotation names another package."""
    root = code.dotted(made.func).partition(".")[0]
    arguments = (*function.args.posonlyargs, *function.args.args, *function.args.kwonlyargs)
    said = next((each.annotation for each in arguments if each.arg == root), None)
    if code.qualified(said).partition(".")[0] in _OTHER_RUNTIMES:
        return True
    return any(
        code.callee(call) == "torch.from_numpy" and bool(call.args) and _carries(code, call.args[0], made)
        for call in code.calls(function)
    )


def is_way_out(code: Code, made: ast.Call) -> bool:
    """In a handler, after the same call without gradients failed: the model needs them."""
    child: ast.AST = made
    for each in code.above(made):
        if isinstance(each, ast.Try) and child in each.handlers:
            tried = [call for one in each.body for call in ast.walk(one) if isinstance(call, ast.Call)]
            if any(code.dotted(call.func) == code.dotted(made.func) and gradients_off(code, call) for call in tried):
                return True
        child = each
    return False


def _carries(code: Code, node: ast.expr, made: ast.Call, depth: int = _DEPTH) -> bool:  # noqa: PLR0911 - one for each form
    """Does a value come from what a call has made, with the graph if there is one?"""
    if node is made or depth <= 0:
        return node is made
    match node:
        case ast.Name():
            known = code.binding(node)
            value = known.value if known is not None else None
            # One part of what another call returns may be indices.
            return value is not None and (
                value is made or (not known.part and _carries(code, value, made, depth - 1))  # type: ignore[union-attr]
            )
        case ast.Attribute(attr=attr, value=value):
            return attr not in NO_GRAPH_ATTRIBUTES and _carries(code, value, made, depth - 1)
        case ast.Subscript(value=value):
            return not _gives_indices(value) and _carries(code, value, made, depth - 1)
        case ast.BinOp(left=left, right=right):
            return _carries(code, left, made, depth - 1) or _carries(code, right, made, depth - 1)
        case ast.Call(func=func, args=args):
            if isinstance(func, ast.Attribute) and func.attr in NO_GRAPH:
                return False
            parts = [func.value, *args] if isinstance(func, ast.Attribute) else args
            return any(_carries(code, part, made, depth - 1) for part in parts)
        case _:
            return False


def _gives_indices(node: ast.expr) -> bool:
    return isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr in _INDICES
