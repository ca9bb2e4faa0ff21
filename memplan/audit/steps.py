"""Which loop trains, which evaluates, and where gradients are off."""

import ast
import re

from memplan.audit.code import FUNCTIONS, Code, Function, Loop

_BACKWARD = frozenset({"backward", "manual_backward"})
_OPTIMIZER = re.compile(r"(?:^|[._])(?:\w*optim\w*|opt|opt_\w+|\w+_opt|scaler|engine|model_engine)$", re.IGNORECASE)
_EVALUATES = re.compile(
    r"(?:^|_)(?:eval|evaluate|evaluation|validate|validation|valid|val|test|predict|prediction|infer|inference)(?:_|$)",
    re.IGNORECASE,
)
STEP_NAMES = frozenset({"training_step", "train_step", "train_batch", "optimize_parameters"})
"""Functions that are called once a step (Lightning, and what people call their own)."""
_DATA = re.compile(r"(?:loader|dataset|batches|dataloader|_iter|data)s?$|^dl$|_dl$", re.IGNORECASE)
_BATCH_PART = re.compile(r"(?:^|_)(?:mini)?batch(?:_(?!loader|iter)\w+)?$", re.IGNORECASE)
"""One batch or a list of its parts: what goes over it does not grow with the data."""
_EPOCH = re.compile(r"epoch|fold|trial|seed|round", re.IGNORECASE)
_OFF = frozenset({"torch.no_grad", "torch.inference_mode", "torch.autograd.no_grad", "torch.autograd.inference_mode"})
_OFF_NAMES = re.compile(r"no_grad|inference_mode|(?:^|_)(?:eval|evaluation|evaluating|inference|predict)(?:_|$)")
"""Contexts and decorators of other libraries that turn gradients off, or may: ``eval_mode`` of MONAI."""


def is_backward(call: ast.Call) -> bool:
    """``loss.backward()``, ``accelerator.backward(loss)`` and so on."""
    return isinstance(call.func, ast.Attribute) and call.func.attr in _BACKWARD


def is_optimizer(name: str) -> bool:
    """Does a name say that it is an optimizer?"""
    return _OPTIMIZER.search(name) is not None


def is_step(code: Code, call: ast.Call) -> bool:
    """``optimizer.step()``."""
    func = call.func
    return isinstance(func, ast.Attribute) and func.attr == "step" and is_optimizer(code.dotted(func.value))


def trains(code: Code, node: ast.AST) -> bool:
    """Is there a backward pass or an optimizer's step within it?"""
    if ("trains", node) not in code.kept:
        code.kept["trains", node] = any(is_backward(call) or is_step(code, call) for call in code.calls(node))
    answer: bool = code.kept["trains", node]
    return answer


def step_loop(code: Code, node: ast.AST) -> Loop | None:
    """The innermost loop around it that trains; what is bound before that loop lives on from step to step."""
    return next((loop for loop in code.loops(node) if trains(code, loop)), None)


def in_step_function(code: Code, node: ast.AST) -> Function | None:
    """The method that a trainer calls once a step, if it stands in one."""
    function = code.function(node)
    return function if function is not None and function.name in STEP_NAMES and code.class_of(function) else None


def is_over_epochs(code: Code, loop: Loop) -> bool:
    """Does it go round once an epoch, or less often?"""
    if isinstance(loop, ast.While):
        return False
    names = [code.dotted(each) for each in ast.walk(loop.target)] + [code.dotted(each) for each in ast.walk(loop.iter)]
    return any(_EPOCH.search(name) for name in names)


def is_over_data(code: Code, loop: Loop) -> bool:
    """Does it go over batches? ``for batch in tqdm(loader)``."""
    if isinstance(loop, ast.While):
        return False
    of_one_batch = any(_BATCH_PART.search(name) for name in _last_names(code, loop.iter))
    batches = any("batch" in code.dotted(each) for each in ast.walk(loop.target)) and not of_one_batch
    return batches or any(_DATA.search(name) for name in _last_names(code, loop.iter))


def is_over_loader(code: Code, loop: Loop) -> bool:
    """The same where what is iterated over says so, itself or what it was made of: ``progress = tqdm(loader)``."""
    if isinstance(loop, ast.While):
        return False
    sources: list[ast.expr] = [loop.iter]
    for each in ast.walk(loop.iter):
        binding = code.binding(each) if isinstance(each, ast.Name | ast.Attribute) else None
        if binding is not None and binding.value is not None and not binding.part:
            sources.append(binding.value)
    names = [name for source in sources for name in _last_names(code, source)]
    return any(_DATA.search(name) and not _BATCH_PART.search(name) for name in names)


def _last_names(code: Code, node: ast.AST) -> list[str]:
    return [name.rpartition(".")[2] for name in (code.dotted(each) for each in ast.walk(node)) if name]


def evaluates(name: str) -> bool:
    """Does a function's name say so?"""
    return _EVALUATES.search(name) is not None


def gradients_off(code: Code, node: ast.AST) -> bool:
    """Does it stand where autograd records nothing, as far as its file shows?"""
    for each in code.above(node):
        if isinstance(each, ast.With | ast.AsyncWith) and any(
            turns_off(code, item.context_expr) for item in each.items
        ):
            return True
        if isinstance(each, FUNCTIONS):
            if any(turns_off(code, decorator) for decorator in each.decorator_list):
                return True
            if _switched_off_before(code, each, node):
                return True
    return _switched_off_before(code, code.tree, node)


def turns_off(code: Code, context: ast.expr) -> bool:
    """Is it a context, or a decorator, without gradients?"""
    inner = context.func if isinstance(context, ast.Call) else context
    name = code.qualified(inner)
    last = name.rpartition(".")[2]
    if isinstance(context, ast.Call) and last == "set_grad_enabled":
        return not (context.args and isinstance(context.args[0], ast.Constant) and context.args[0].value is True)
    # ``torch.no_grad() if frozen else nullcontext()``: somebody thought of it.
    if isinstance(context, ast.IfExp):
        return turns_off(code, context.body) or turns_off(code, context.orelse)
    if isinstance(context, ast.Name) and not name.startswith("torch."):
        binding = code.binding(context)
        if binding is not None and binding.value is not None and binding.value is not context:
            return not isinstance(binding.value, ast.Name) and turns_off(code, binding.value)
    return name in _OFF or _OFF_NAMES.search(last) is not None or _own_context(code, last)


def _own_context(code: Code, name: str) -> bool:
    """Is it a context manager of this file, within which gradients are off?"""
    for each in code.functions:
        managed = each.name == name and any("contextmanager" in code.qualified(one) for one in each.decorator_list)
        if managed and any(code.callee(call) in {*_OFF, "torch.set_grad_enabled"} for call in code.calls(each)):
            return True
    return False


def _switched_off_before(code: Code, scope: ast.AST, node: ast.AST) -> bool:
    """``torch.set_grad_enabled(False)`` as a statement of the scope, somewhere above."""
    key = ("switches", code.tree)
    if key not in code.kept:
        code.kept[key] = [call for call in code.all(ast.Call) if _switches_off(code, call)]
    line = getattr(node, "lineno", 0)
    return any(call.lineno < line and code.scope(call) is scope for call in code.kept[key])


def _switches_off(code: Code, call: ast.Call) -> bool:
    off = bool(call.args) and isinstance(call.args[0], ast.Constant) and call.args[0].value is False
    return off and isinstance(code.parent(call), ast.Expr) and code.callee(call).endswith("set_grad_enabled")


def called_without_gradients(code: Code, function: Function) -> bool:
    """Does every call of it in this file stand where gradients are off?"""
    calls = [
        call for call in code.all(ast.Call)
        if code.dotted(call.func).rpartition(".")[2] == function.name and code.function(call) is not function
    ]  # fmt: skip
    return bool(calls) and all(gradients_off(code, call) for call in calls)
