"""Autograd asked for more than a step needs."""

import ast
from collections.abc import Iterator

from memplan.audit.code import FUNCTIONS, Code
from memplan.audit.hits import constant, forwards_keywords, hit, keyword, replaced, words
from memplan.audit.records import Hit
from memplan.audit.steps import is_backward, step_loop, trains

_TERMS = 40
"""Names of a sum that are followed."""
_PROFILERS = frozenset({"torch.profiler.profile", "torch.autograd.profiler.profile", "torch.profiler.profiler.profile"})


def retained_graph(code: Code) -> Iterator[Hit]:
    """MA031: where another backward pass follows in the function, or goes round in a loop of losses, it has its use."""
    for call in code.all(ast.Call):
        asked = keyword(call, "retain_graph")
        if constant(asked) is not True or not _is_backward(code, call) or _in_autograd_function(code, call):
            continue
        if constant(keyword(call, "create_graph") or ast.Constant(False)) is not False:
            continue
        others = [each for each in code.calls(code.names_scope(call)) if _is_backward(code, each) and each is not call]
        if (
            not _made_here(code, call)
            or any(_position(each) > _position(call) for each in others)
            or _goes_round(code, call)
            or _in_closure(code, call)
        ):
            continue
        yield hit(
            code, "MA031", call, f"{words(call.func)}(retain_graph=True) keeps the graph, and no backward pass follows"
        )


def _made_here(code: Code, call: ast.Call) -> bool:
    """Is the loss a local one? What comes from elsewhere may go backward there again."""
    func = call.func
    assert isinstance(func, ast.Attribute | ast.Name)  # noqa: S101 - it has a name
    direct = isinstance(func, ast.Attribute) and not code.qualified(func).startswith("torch.") and not call.args
    sent = func.value if direct and isinstance(func, ast.Attribute) else call.args[0] if call.args else None
    names = [each for each in ast.walk(sent) if isinstance(each, ast.Name)] if sent is not None else []
    if not names or isinstance(sent, ast.Attribute):
        return False
    return all(_is_spent(code, each, call) for each in _terms(code, names))


def _terms(code: Code, names: list[ast.Name]) -> list[ast.Name]:
    """What a loss is added up of, back through arithmetic."""
    terms = list(names)
    for name in terms:
        binding = code.binding(name)
        value = binding.value if binding is not None and not binding.part else None
        if isinstance(value, ast.BinOp | ast.UnaryOp) and len(terms) < _TERMS:
            terms += [each for each in ast.walk(value) if isinstance(each, ast.Name) and each not in terms]
    return terms


def _is_spent(code: Code, name: ast.Name, call: ast.Call) -> bool:
    """Is a term a local one, and not used in arithmetic again below?"""
    scope = code.names_scope(call)
    if name.id in code.imports:
        return True
    if code.binding(name) is None or (isinstance(code.parent(name), ast.Attribute) and name.id == "self"):
        return False
    later = (each for each in code.inside(scope, ast.Name) if getattr(each, "lineno", 0) > call.lineno)
    return not any(
        isinstance(each, ast.Name) and each.id == name.id and isinstance(code.parent(each), ast.BinOp) for each in later
    )


def _goes_round(code: Code, call: ast.Call) -> bool:
    """In a loop over losses, outputs or classes, where the same graph is gone through in every round."""
    loops = code.loops(call)
    if not loops:
        return False
    forwards = any(
        isinstance(each.func, ast.Name | ast.Attribute) and _makes_loss(code, each) for each in code.calls(loops[0])
    )
    return not forwards


def _in_closure(code: Code, call: ast.Call) -> bool:
    """A lambda, or a function in a function, which may be called again on the same graph."""
    scope = code.scope(call)
    return isinstance(scope, ast.Lambda) or (isinstance(scope, FUNCTIONS) and code.function(scope) is not None)


def _makes_loss(code: Code, call: ast.Call) -> bool:
    from memplan.audit.values import is_loss_call, is_model_call

    return is_loss_call(code, call) or is_model_call(code, call)


def _is_backward(code: Code, call: ast.Call) -> bool:
    return is_backward(call) or code.callee(call) in ("torch.autograd.grad", "torch.autograd.backward")


def _in_autograd_function(code: Code, call: ast.Call) -> bool:
    function = code.function(call)
    return function is not None and function.name == "backward"


def _position(node: ast.Call) -> tuple[int, int]:
    return node.lineno, node.col_offset


def cyclic_graph(code: Code) -> Iterator[Hit]:
    """MA032."""
    for call in code.all(ast.Call):
        if constant(keyword(call, "create_graph")) is not True or not isinstance(call.func, ast.Attribute):
            continue
        if call.func.attr == "backward" and not _reset(code, call):
            yield hit(
                code, "MA032", call, f"{words(call.func)}(create_graph=True) ties parameters and gradients together"
            )


def _reset(code: Code, call: ast.Call) -> bool:
    """``p.grad = None`` in the same function."""
    bindings = code.bindings(code.names_scope(call))
    return any(
        name.endswith(".grad") and constant(each.value) is None for name, known in bindings.items() for each in known
    )


def zeroed_in_place(code: Code) -> Iterator[Hit]:
    """MA033."""
    for call in code.all(ast.Call):
        asked = keyword(call, "set_to_none")
        if (
            asked is not None
            and constant(asked) is False
            and isinstance(call.func, ast.Attribute)
            and call.func.attr == "zero_grad"
        ):
            yield hit(
                code, "MA033", call, f"{words(call)} keeps every gradient allocated", replaced(code, asked, "True")
            )


def inputs_with_gradients(code: Code) -> Iterator[Hit]:
    """MA034."""
    for call in code.all(ast.Call):
        loop = step_loop(code, call)
        if loop is None or not _asks_for_gradients(code, call):
            continue
        function = code.names_scope(call)
        reads = any(
            (isinstance(each, ast.Attribute) and each.attr in ("grad", "grad_fn"))
            or code.callee(each).endswith(("autograd.grad", "checkpoint", "functional.jacobian"))
            for each in ast.walk(function)
        )
        statement = code.statement(call)
        targets = statement.targets if isinstance(statement, ast.Assign) else []
        optimised = any(_is_optimised(code, function, code.dotted(target)) for target in targets)
        if not reads and not optimised:
            yield hit(code, "MA034", call, f"{words(call)} in a training loop, and no gradient of an input is read")


def _asks_for_gradients(code: Code, call: ast.Call) -> bool:
    func = call.func
    if isinstance(func, ast.Attribute) and func.attr == "requires_grad_" and _is_input(code, func.value):
        return not call.args or constant(call.args[0]) is True
    variable = code.callee(call) == "torch.autograd.Variable"
    return (
        variable
        and constant(keyword(call, "requires_grad")) is True
        and bool(call.args)
        and _is_input(code, call.args[0])
    )


def _is_input(code: Code, node: ast.expr) -> bool:
    """By its name only."""
    return code.dotted(node).rpartition(".")[2] in {
        "x", "input", "inputs", "image", "images", "img", "imgs", "batch", "data", "pixel_values", "features",
    }  # fmt: skip


def _is_optimised(code: Code, function: ast.AST, name: str) -> bool:
    return any(
        "optim" in code.callee(call) and any(code.dotted(each) == name for arg in call.args for each in ast.walk(arg))
        for call in code.calls(function)
    )


def anomaly_detection(code: Code) -> Iterator[Hit]:
    """MA035."""
    for call in code.all(ast.Call):
        name = code.callee(call)
        if name == "torch.autograd.set_detect_anomaly":
            asked = call.args[0] if call.args else keyword(call, "mode")
            if (
                asked is not None
                and constant(asked) is True
                and not isinstance(code.parent(call), ast.withitem)
                and not _guarded(code, call)
            ):
                yield hit(
                    code, "MA035", call, "anomaly detection is on for all that follows", replaced(code, asked, "False")
                )
        elif name == "torch.autograd.detect_anomaly" and isinstance(code.parent(call), ast.withitem):
            block = code.parent(code.parent(call))  # type: ignore[arg-type]
            if block is not None and trains(code, block) and constant(call.args[0] if call.args else None) is not False:
                yield hit(code, "MA035", call, "the training step runs under anomaly detection")


def _guarded(code: Code, node: ast.AST) -> bool:
    """``if args.debug:`` — somebody asked for it."""
    for each in code.above(node):
        if isinstance(each, ast.If) and any(
            word in ast.unparse(each.test).lower() for word in ("debug", "anomaly", "detect", "nan")
        ):
            return True
        if isinstance(each, FUNCTIONS):
            return False
    return False


def endless_recording(code: Code) -> Iterator[Hit]:
    """MA036."""
    for call in code.all(ast.Call):
        name = code.callee(call)
        if name in _PROFILERS and keyword(call, "schedule") is None and not forwards_keywords(call):
            block = _block(code, call)
            if block is not None and any(trains(code, loop) for loop in code.inside(block, ast.For, ast.While)):
                yield hit(code, "MA036", call, "the profiler keeps every event of the training loop")
        elif name.endswith("memory._record_memory_history") and not _ends(code, call):
            yield hit(code, "MA036", call, "the allocator's history is recorded without a limit and never stopped")


def _block(code: Code, call: ast.Call) -> ast.AST | None:
    item = code.parent(call)
    return code.parent(item) if isinstance(item, ast.withitem) else None


def _ends(code: Code, call: ast.Call) -> bool:
    if keyword(call, "max_entries") is not None or forwards_keywords(call) or len(call.args) > 3 or call.args:
        return True
    if constant(keyword(call, "enabled")) is None:
        return True
    return any(
        each is not call and code.callee(each).endswith("memory._record_memory_history")
        and (constant(keyword(each, "enabled")) is None or (bool(each.args) and constant(each.args[0]) is None))
        for each in code.all(ast.Call)
    )  # fmt: skip
