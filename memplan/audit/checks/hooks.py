"""Hooks that add up, and hooks that keep what they see."""

import ast
from collections.abc import Iterator

from memplan.audit.code import Code, Function
from memplan.audit.hits import detached, hit, words
from memplan.audit.records import Hit
from memplan.audit.steps import gradients_off, is_over_data, step_loop

_FORWARD = frozenset({"register_forward_hook", "register_module_forward_hook"})
_KINDS = _FORWARD | frozenset({
    "register_forward_pre_hook", "register_full_backward_hook", "register_backward_hook",
    "register_full_backward_pre_hook",
    "register_step_post_hook", "register_step_pre_hook",
})  # fmt: skip
"""Of modules and optimizers. A tensor's own hook goes with the tensor."""
_LOSES_GRAPH = frozenset({"detach", "detach_", "item", "cpu_detach", "numpy", "tolist"})


def registered_each_step(code: Code) -> Iterator[Hit]:
    """MA051."""
    for call in code.all(ast.Call):
        if not isinstance(call.func, ast.Attribute) or call.func.attr not in _KINDS:
            continue
        loop = step_loop(code, call) or next((each for each in code.loops(call) if is_over_data(code, each)), None)
        if loop is None:
            continue
        removed = any(
            isinstance(each, ast.Attribute) and each.attr in ("remove", "remove_hooks") for each in ast.walk(loop)
        )
        binding = code.binding(call.func.value)
        fresh = (
            binding is not None
            and any(each is binding.node for each in ast.walk(loop))
            and binding.node not in code.loops(call)
        )
        if not removed and not fresh and not isinstance(code.parent(call), ast.withitem):
            yield hit(code, "MA051", call, f"{words(call.func)} is called in every round, and nothing removes the hook")


def stores_graph(code: Code) -> Iterator[Hit]:
    """MA052."""
    for function in _forward_hooks(code):
        arguments = [each.arg for each in function.args.args if each.arg not in ("self", "cls")]
        if len(arguments) < 3 or _no_gradients_in_file(code) or gradients_off(code, function):
            continue
        for node, value in _stored(code, function):
            if _is_whole(code, value, arguments[-1]):
                yield hit(
                    code,
                    "MA052",
                    node,
                    f"{function.name}() stores {words(value)} with its graph",
                    *detached(code, value),
                )


def _forward_hooks(code: Code) -> Iterator[Function]:
    """Functions of this file that are registered by name."""
    names: set[str] = set()
    for call in code.all(ast.Call):
        if isinstance(call.func, ast.Attribute) and call.func.attr in _FORWARD and call.args:
            given = call.args[0]
            names.add(code.dotted(given.func if isinstance(given, ast.Call) else given).rpartition(".")[2])
    makers = {each for each in code.functions if each.name in names}
    for function in code.functions:
        # ``register_forward_hook(save(name))``: what the maker defines is the hook.
        if function in makers or code.function(function) in makers:
            yield function


def _stored(code: Code, function: Function) -> Iterator[tuple[ast.AST, ast.expr]]:
    local = {name for name in code.bindings(function) if "." not in name}
    for call in code.calls(function):
        func = call.func
        if isinstance(func, ast.Attribute) and func.attr == "append" and len(call.args) == 1:
            yield from [(call, call.args[0])] if code.dotted(func.value) not in local | {""} else []
    for node in code.inside(function, ast.Assign):
        assert isinstance(node, ast.Assign)  # noqa: S101 - asked for
        for target in node.targets:
            holder = target
            while isinstance(holder, ast.Subscript):
                holder = holder.value
            if (isinstance(target, ast.Subscript) and code.dotted(holder) not in local | {""}) or (
                isinstance(target, ast.Attribute) and code.dotted(target).startswith("self.")
            ):
                yield node, node.value


def _is_whole(code: Code, value: ast.expr, output: str) -> bool:
    """The output itself, or one of its parts, not detached."""
    if isinstance(value, ast.Name) and value.id != output:
        binding = code.binding(value)
        return (
            binding is not None
            and binding.value is not None
            and isinstance(binding.value, ast.Subscript | ast.Name)
            and (_is_whole(code, binding.value, output))
        )
    if isinstance(value, ast.Subscript):
        return _is_whole(code, value.value, output)
    if (
        isinstance(value, ast.Call)
        and isinstance(value.func, ast.Attribute)
        and value.func.attr in ("cpu", "clone", "float", "to")
    ):
        return _is_whole(code, value.func.value, output)
    return (
        isinstance(value, ast.Name)
        and value.id == output
        and ((binding := code.binding(value)) is None or not _loses(binding.value))
    )


def _loses(value: ast.expr | None) -> bool:
    return value is not None and any(
        isinstance(each, ast.Attribute) and each.attr in _LOSES_GRAPH for each in ast.walk(value)
    )


def _no_gradients_in_file(code: Code) -> bool:
    """Who calls a model in this file only without gradients lets the hook see none."""
    text = code.text
    return "no_grad" in text or "inference_mode" in text
