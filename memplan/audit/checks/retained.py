"""What outlives its step: totals, containers, attributes, meters, moving averages."""

import ast
import re
from collections.abc import Iterator

from memplan.audit.code import FUNCTIONS, Code, Loop
from memplan.audit.hits import detached, hit, words
from memplan.audit.records import Hit
from memplan.audit.steps import gradients_off, in_step_function, is_backward, step_loop, trains
from memplan.audit.values import has_graph, modules

_ADDS = frozenset({"append", "appendleft", "extend", "add", "put"})
_EMPTIES = frozenset({"clear", "pop", "popleft", "reset", "popitem"})
_METER = re.compile(
    r"(?:^|[._])(?:\w*meter\w*|loss_avg|avg_loss|running_loss|\w*_avg|losses|loss_history)$", re.IGNORECASE
)
_LOGS = re.compile(r"(?:^|[._])(?:log_history|history|loss_log|metric_logger|train_log|metrics_log)$", re.IGNORECASE)


def running_total(code: Code) -> Iterator[Hit]:
    """MA001."""
    for node in code.all(ast.AugAssign):
        if isinstance(node.op, ast.Add | ast.Sub) and (name := _target(code, node.target)):
            yield from _total(code, node, name, node.value)
    for bound in code.all(ast.Assign):
        value = bound.value
        if len(bound.targets) == 1 and isinstance(value, ast.BinOp) and isinstance(value.op, ast.Add):
            name = _target(code, bound.targets[0])
            if name and name == _target(code, value.left):
                yield from _total(code, bound, name, value.right)


def _total(code: Code, node: ast.stmt, name: str, value: ast.expr) -> Iterator[Hit]:
    loop = step_loop(code, node)
    if loop is None or not has_graph(code, value) or _starts_over(code, loop, name) or _goes_backward(code, node, name):
        return
    yield hit(
        code, "MA001", node, f"{name} grows by {words(value)} with its graph, and lives on after the step",
        *detached(code, value),
    )  # fmt: skip


def container(code: Code) -> Iterator[Hit]:
    """MA002."""
    for call in code.all(ast.Call):
        func = call.func
        if isinstance(func, ast.Attribute) and func.attr in _ADDS and len(call.args) == 1:
            yield from _kept(code, call, func.value, call.args[0])
    for node in code.all(ast.Assign):
        for target in node.targets:
            # A constant key is overwritten in the next step.
            if isinstance(target, ast.Subscript) and not isinstance(target.slice, ast.Constant | ast.Slice | ast.Tuple):
                yield from _kept(code, node, target.value, node.value, target.slice)


def _kept(code: Code, node: ast.AST, holder: ast.expr, value: ast.expr, key: ast.expr | None = None) -> Iterator[Hit]:
    name, loop = _target(code, holder), step_loop(code, node)
    values = value.elts if isinstance(value, ast.List | ast.Tuple) else [value]
    with_graph = next((each for each in values if has_graph(code, each)), None)
    if not name or with_graph is None or (loop is None and not name.startswith("self.")):
        return
    if loop is None:
        function = in_step_function(code, node)
        if function is None or key is not None or _emptied_in_class(code, node, name):
            return
    elif (
        _starts_over(code, loop, name) or _goes_backward(code, node, name) or not _turns(code, loop, key)
        or (name.startswith("self.") and _emptied_in_class(code, node, name)) or _is_read_for_loss(code, loop, name)
    ):  # fmt: skip
        return
    yield hit(
        code,
        "MA002",
        node,
        f"{name} keeps {words(with_graph)} of every step with its graph",
        *detached(code, with_graph),
    )


def _turns(code: Code, loop: Loop, key: ast.expr | None) -> bool:
    """Does a key change from step to step? Only the loop's own counter or a counter of steps is known to."""
    if key is None:
        return True
    own = {code.dotted(each) for each in ast.walk(loop.target)} if not isinstance(loop, ast.While) else set()
    return code.dotted(key) in own - {""}


def attribute(code: Code) -> Iterator[Hit]:
    """MA003."""
    for node in code.all(ast.Assign):
        target = node.targets[0]
        name = code.dotted(target)
        if len(node.targets) != 1 or not isinstance(target, ast.Attribute) or not name.startswith("self."):
            continue
        place = step_loop(code, node) or in_step_function(code, node)
        function = code.function(node)
        if place is None or function is None or isinstance(node.value, ast.BinOp) or not has_graph(code, node.value):
            continue
        adds = any(isinstance(each.node, ast.AugAssign) for each in code.bindings(function).get(name, ()))
        own = any(is_backward(call) and code.dotted(call.func) == "self.backward" for call in code.calls(function))
        if (
            adds
            or own
            or _goes_backward(code, node, name)
            or _read(code, function, name)
            or _let_go(code, function, name)
        ):
            continue
        yield hit(
            code, "MA003", node, f"{name} holds {words(node.value)} with its graph into the next step",
            *detached(code, node.value),
        )  # fmt: skip


def meter(code: Code) -> Iterator[Hit]:
    """MA004."""
    for call in code.all(ast.Call):
        func = call.func
        if not isinstance(func, ast.Attribute) or step_loop(code, call) is None:
            continue
        name = code.dotted(func.value) or code.dotted(getattr(func.value, "value", None))
        metered = func.attr in ("update", "add", "append") and _METER.search(name) and func.attr == "update"
        if not metered and not (func.attr in ("update", "log") and _LOGS.search(name)):
            continue
        given = [*call.args, *(each.value for each in call.keywords)]
        inside = [each for one in given for each in (one.values if isinstance(one, ast.Dict) else [one])]
        kept = next((each for each in inside if has_graph(code, each)), None)
        if kept is not None:
            yield hit(code, "MA004", call, f"{name} takes {words(kept)} with its graph", *detached(code, kept))


def moving_average(code: Code) -> Iterator[Hit]:
    """MA005."""
    for node in code.all(ast.Assign):
        target, value = node.targets[0], node.value
        if len(node.targets) != 1 or not isinstance(value, ast.BinOp) or gradients_off(code, node):
            continue
        if not isinstance(value.op, ast.Add) or not isinstance(target, ast.Attribute | ast.Subscript):
            continue
        own = ast.unparse(target)
        if "loss" in own.lower() or _is_made_anew(code, node, target):
            continue
        scaled = [
            each for each in (value.left, value.right) if isinstance(each, ast.BinOp) and isinstance(each.op, ast.Mult)
        ]
        olds = [each for each in scaled if own in (ast.unparse(each.left), ast.unparse(each.right))]
        news = [each for each in scaled if each not in olds]
        if len(olds) == 1 and len(news) == 1 and _news_has_graph(code, target, news[0]):
            yield hit(code, "MA005", node, f"{own} is made of itself and of {words(news[0])} with gradients on")


def _is_made_anew(code: Code, node: ast.Assign, target: ast.expr) -> bool:
    """Does its function give the name another value, not made of itself?"""
    name = _target(code, target)
    known = code.bindings(code.names_scope(node)).get(name, [])
    return any(each.node is not node and not _refers(code, each.value, name) for each in known) and isinstance(
        target, ast.Attribute
    )


def _news_has_graph(code: Code, target: ast.expr, new: ast.BinOp) -> bool:
    """In a module's forward an input counts as having one; elsewhere what is known to, and a model's parameters."""
    for part in (new.left, new.right):
        if has_graph(code, part) or _is_parameter(code, part):
            return True
        if isinstance(target, ast.Attribute) and _of_forward(code, part):
            return True
    return False


def _is_parameter(code: Code, node: ast.expr) -> bool:
    binding = code.binding(node) if isinstance(node, ast.Name) else None
    if binding is None or not binding.part or not isinstance(binding.value, ast.Call):
        return False
    func = binding.value.func
    return (
        isinstance(func, ast.Attribute)
        and func.attr in ("parameters", "named_parameters")
        and (code.dotted(func.value) in modules(code) | {"self"})
    )


def _of_forward(code: Code, node: ast.expr) -> bool:
    """``x.mean(0)`` in ``forward(self, x)``; or a name bound to such a thing there."""
    function = code.function(node)
    if function is None or function.name != "forward":
        return False
    if isinstance(node, ast.Name):
        binding = code.binding(node)
        return (
            binding is not None
            and not binding.part
            and isinstance(binding.value, ast.Call)
            and _of_forward(code, binding.value)
        )
    if not isinstance(node, ast.Call) or not isinstance(node.func, ast.Attribute):
        return False
    receiver = node.func.value
    return (
        node.func.attr in ("mean", "var", "std", "sum", "norm")
        and isinstance(receiver, ast.Name)
        and (receiver.id in {each.arg for each in function.args.args[1:]} and code.binding(receiver) is None)
    )


# Does it really live on?


def _target(code: Code, node: ast.expr) -> str:
    """The name of a total or container: of ``sums["train"]`` it is ``sums``."""
    while isinstance(node, ast.Subscript):
        node = node.value
    return code.dotted(node)


def _starts_over(code: Code, loop: Loop, name: str) -> bool:
    """Is it bound anew, or emptied, within the loop?"""
    inner = {id(each) for each in code.inside(loop, ast.Assign, ast.AnnAssign, ast.Delete, ast.For, ast.withitem)}
    scope = code.names_scope(loop)
    if any(
        id(each.node) in inner and not _refers(code, each.value, name) for each in code.bindings(scope).get(name, ())
    ):
        return True
    # ``for losses in …``, ``for k, meter in meters.items()``: another one in every round.
    if not isinstance(loop, ast.While) and name.partition(".")[0] in {
        code.dotted(each) for each in ast.walk(loop.target)
    }:
        return True
    root = name.partition(".")[0]
    if root != "self" and any(id(each.node) in inner for each in code.bindings(scope).get(root, ())) and root != name:
        return True
    return _emptied(code, loop, name)


def _refers(code: Code, value: ast.expr | None, name: str) -> bool:
    return value is not None and any(code.dotted(each) == name for each in ast.walk(value))


def _emptied(code: Code, place: ast.AST, name: str) -> bool:
    """``losses.clear()``, ``del losses[:]``, ``losses[:] = []`` within a place."""
    for call in code.calls(place):
        if (
            isinstance(call.func, ast.Attribute)
            and call.func.attr in _EMPTIES
            and _target(code, call.func.value) == name
        ):
            return True
    for each in code.inside(place, ast.Delete, ast.Assign):
        targets = each.targets if isinstance(each, ast.Delete | ast.Assign) else []
        if any(isinstance(one, ast.Subscript) and isinstance(one.slice, ast.Slice) and _target(code, one) == name
               for one in targets):  # fmt: skip
            return True
    return False


def _emptied_in_class(code: Code, node: ast.AST, name: str) -> bool:
    """Does any method but the constructor set it anew or empty it?"""
    holder = code.class_of(node)
    methods = [each for each in holder.body if isinstance(each, FUNCTIONS)] if holder else []
    return any(
        each.name not in ("__init__", "setup", "configure_model")
        and (
            _emptied(code, each, name)
            or any(not _refers(code, one.value, name) for one in code.bindings(each).get(name, ()))
        )
        for each in methods
    )


def _goes_backward(code: Code, node: ast.AST, name: str) -> bool:
    """Is the total itself sent backward, or handed on to be, somewhere in its function?"""
    scope = code.names_scope(node)
    for call in code.calls(scope):
        if is_backward(call) and _mentions(code, call, name):
            return True
    # total → loss = total / n → loss.backward(), once removed or twice.
    derived = {name}
    for _ in range(3):
        derived |= {
            bound for bound, bindings in code.bindings(scope).items()
            for each in bindings if each.value is not None and any(_mentions(code, each.value, one) for one in derived)
        }  # fmt: skip
    return any(is_backward(call) and any(_mentions(code, call, one) for one in derived) for call in code.calls(scope))


def _mentions(code: Code, node: ast.AST, name: str) -> bool:
    return any(code.dotted(each) == name for each in ast.walk(node))


def _is_read_for_loss(code: Code, loop: Loop, name: str) -> bool:
    """A container that a call in the loop takes whole is handed over, to a loss or a method that empties it."""
    return any(
        code.dotted(each) == name
        for call in code.calls(loop)
        for each in [*call.args, *(one.value for one in call.keywords)]
        if trains(code, loop) and code.callee(call) not in ("len", "print", "sum", "max", "min", "numpy.mean", "str")
    )


def _read(code: Code, function: ast.AST, name: str) -> bool:
    """Is it read again in the same function? Then it is more than a keepsake."""
    return any(
        isinstance(each, ast.Attribute) and isinstance(each.ctx, ast.Load) and code.dotted(each) == name
        for each in ast.walk(function)
    )


def _let_go(code: Code, function: ast.AST, name: str) -> bool:
    return any(
        isinstance(each.value, ast.Constant) or each.value is None for each in code.bindings(function).get(name, ())
    )
