"""The caching allocator and the garbage collector, worked against."""

import ast
from collections.abc import Iterator

from memplan.audit.code import Code
from memplan.audit.hits import hit, without
from memplan.audit.records import Hit
from memplan.audit.steps import in_step_function, is_backward, is_over_data, is_over_epochs, is_step
from memplan.audit.values import is_model_call

_OOM = ("OutOfMemoryError", "RuntimeError", "AcceleratorError")


def empty_cache(code: Code) -> Iterator[Hit]:
    """MA021."""
    for call in code.all(ast.Call):
        name = code.callee(call)
        if name.rpartition(".")[2] == "empty_cache" and _is_cache(name) and _every_step(code, call):
            yield hit(
                code, "MA021", call, f"{code.dotted(call.func)}() in every step", *without(code, code.statement(call))
            )


def _is_cache(name: str) -> bool:
    return name.startswith("torch.") or "accelerator" in name


def collect(code: Code) -> Iterator[Hit]:
    """MA022."""
    for call in code.all(ast.Call):
        if code.callee(call) == "gc.collect" and _every_step(code, call):
            yield hit(code, "MA022", call, "gc.collect() in every step", *without(code, code.statement(call)))


def _every_step(code: Code, call: ast.Call) -> bool:
    """In a loop over batches, and neither now and then nor in an emergency."""
    loops = code.loops(call)
    place = loops[0] if loops else in_step_function(code, call)
    if place is None or any(
        isinstance(each, ast.ExceptHandler | ast.If | ast.IfExp) for each in _between(code, call, place)
    ):
        return False
    if not loops:
        return True
    loop = loops[0]
    if is_over_epochs(code, loop):
        return False
    innermost_step = any(
        (is_backward(each) or is_step(code, each)) and code.loops(each)[:1] == [loop] for each in code.calls(loop)
    )
    return innermost_step or (is_over_data(code, loop) and any(is_model_call(code, each) for each in code.calls(loop)))


def _between(code: Code, node: ast.AST, place: ast.AST) -> Iterator[ast.AST]:
    for each in code.above(node):
        if each is place:
            return
        yield each


def retry_in_handler(code: Code) -> Iterator[Hit]:
    """MA023."""
    for handler in code.all(ast.ExceptHandler):
        if not _catches_memory(code, handler) or any(isinstance(each, ast.Raise | ast.Return | ast.Continue | ast.Break)
                                                     for each in handler.body):  # fmt: skip
            continue
        for call in code.calls(handler):
            if is_model_call(code, call) or is_backward(call) or is_step(code, call):
                yield hit(code, "MA023", call, "the step runs again while the exception still holds the failed one")
                break


def _catches_memory(code: Code, handler: ast.ExceptHandler) -> bool:
    kinds = handler.type.elts if isinstance(handler.type, ast.Tuple) else [handler.type]
    names = [code.qualified(kind).rpartition(".")[2] for kind in kinds if kind is not None]
    if "OutOfMemoryError" in names:
        return True
    told = any(isinstance(each, ast.Constant) and "out of memory" in str(each.value) for each in ast.walk(handler))
    clears = any(code.callee(call).endswith("empty_cache") for call in code.calls(handler))
    return (told or clears) and any(name in _OOM for name in names)
