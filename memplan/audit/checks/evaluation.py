"""Evaluation: gradients that nobody wants, modes that stay, outputs that pile up."""

import ast
import re
from collections.abc import Iterator

from memplan.audit.checks import evidence
from memplan.audit.code import Code, Function
from memplan.audit.hits import constant, hit, keyword, line_before, words
from memplan.audit.records import Hit
from memplan.audit.steps import (
    called_without_gradients,
    evaluates,
    in_step_function,
    is_over_data,
    is_over_loader,
    step_loop,
    trains,
)  # fmt: skip
from memplan.audit.values import has_graph, is_model_call, is_output

_HOOKS = re.compile(r"^(?:on_)?(?:validation|test|predict)_(?:step|epoch|batch|start|end)")
"""Lightning calls these with gradients off."""
_READS = {
    "output_hidden_states": re.compile(r"hidden_states?\b(?!\s*=\s*True)"),
    "output_attentions": re.compile(r"(?<!output_)attentions?\b"),
}
"""Argument → how what it asks for is read."""


def gradients_on(code: Code) -> Iterator[Hit]:
    """MA011: one finding for each function that evaluates, at its first call of the model in a loop."""
    for function in code.functions:
        if _HOOKS.match(function.name) or trains(code, function) or not _is_evaluation(code, function):
            continue
        if _frozen(code, function) or _wants_gradients(code, function) or called_without_gradients(code, function):
            continue
        call = next((each for each in _model_calls(code, function) if _records(code, function, each)), None)
        if call is None or evidence.called_from_elsewhere(code, function):
            continue
        edits = (line_before(code, function, "@torch.no_grad()"),) if code.imports.get("torch") == "torch" else ()
        message = f"{function.name}() calls {words(call.func)} in a loop with gradients on and never goes backward"
        yield hit(code, "MA011", call, message, *edits)


def _is_evaluation(code: Code, function: Function) -> bool:
    return evaluates(function.name) or any(
        isinstance(call.func, ast.Attribute) and call.func.attr == "eval" and not call.args
        for call in code.calls(function)
    )


def _model_calls(code: Code, function: Function) -> Iterator[ast.Call]:
    for call in code.calls(function):
        if is_model_call(code, call) and any(is_over_data(code, loop) for loop in code.loops(call)):
            yield call


def _records(code: Code, function: Function, call: ast.Call) -> bool:
    """Are gradients on, for all that is seen, and for nothing?"""
    off = evidence.becomes_numpy(code, function, call) or evidence.is_of_another_runtime(code, function, call)
    return has_graph(code, call) and not off and not evidence.is_way_out(code, call)


def _frozen(code: Code, function: Function) -> bool:
    """``model.requires_grad_(False)``: no graph whatever the mode."""
    return any(
        isinstance(call.func, ast.Attribute) and call.func.attr == "requires_grad_"
        and (not call.args or constant(call.args[0]) is False)
        for call in code.calls(function)
    )  # fmt: skip


def _wants_gradients(code: Code, function: Function) -> bool:
    """Attribution, attacks and the like evaluate with gradients."""
    return any(
        (isinstance(each, ast.Attribute) and each.attr in ("grad", "requires_grad", "requires_grad_"))
        or (isinstance(each, ast.Call) and code.callee(each) in ("torch.autograd.grad", "torch.enable_grad"))
        for each in ast.walk(function)
    )


def left_in_eval(code: Code) -> Iterator[Hit]:
    """MA012."""
    for call in code.all(ast.Call):
        func = call.func
        if not isinstance(func, ast.Attribute) or func.attr != "eval" or call.args or not _is_statement(code, call):
            continue
        loop, name = step_loop(code, call), code.dotted(func.value)
        function = code.names_scope(call)
        trained = any(
            name == code.dotted(each.func.value) for each in code.calls(function)
            if isinstance(each.func, ast.Attribute) and each.func.attr in ("parameters", "train")
        )  # fmt: skip
        if loop is None or not name or not any(is_model_call(code, each) and code.dotted(each.func) == name
                                               for each in code.calls(loop)):  # fmt: skip
            continue
        if trained and not _goes_back(code, loop, name):
            yield hit(
                code,
                "MA012",
                call,
                f"{name} is put into evaluation mode in the training loop, and nothing puts it back",
            )


def _is_statement(code: Code, call: ast.Call) -> bool:
    return isinstance(code.parent(call), ast.Expr)


def _goes_back(code: Code, loop: ast.AST, name: str) -> bool:
    return any(
        isinstance(call.func, ast.Attribute) and call.func.attr == "train" and code.dotted(call.func.value) == name
        for call in code.calls(loop)
    )


def outputs_collected(code: Code) -> Iterator[Hit]:
    """MA013."""
    for call in code.all(ast.Call):
        func = call.func
        if not isinstance(func, ast.Attribute) or func.attr not in ("append", "extend") or len(call.args) != 1:
            continue
        loops = [loop for loop in code.loops(call) if is_over_loader(code, loop)]
        if not loops or (has_graph(code, call.args[0]) and step_loop(code, call) is not None):
            continue
        name = code.dotted(func.value)
        born = code.binding(func.value)
        inside = {id(each) for each in ast.walk(loops[0])}
        if not name or (born is not None and id(born.node) in inside) or in_step_function(code, call):
            continue
        if is_output(code, call.args[0]):
            yield hit(
                code, "MA013", call, f"{name} collects {words(call.args[0])} of every batch on the model's device"
            )


def unread_maps(code: Code) -> Iterator[Hit]:
    """MA014."""
    text = code.text
    for call in code.all(ast.Call):
        for argument, reads in _READS.items():
            asked = keyword(call, argument)
            if constant(asked) is not True or not is_model_call(code, call):
                continue
            others = re.sub(rf"{argument}\s*=\s*True", "", text)
            if any(is_over_data(code, loop) for loop in code.loops(call)) and not reads.search(others):
                assert asked is not None  # noqa: S101 - True is not None
                yield hit(code, "MA014", asked, f"{argument}=True, and nothing in this file reads them")
