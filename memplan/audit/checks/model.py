"""How a model is built, copied and stepped."""

import ast
import re
from collections.abc import Iterator

from memplan.audit.code import Code, Function
from memplan.audit.hits import hit, words
from memplan.audit.records import Hit
from memplan.audit.steps import is_over_data, is_over_epochs, trains
from memplan.audit.values import is_model

_DEEP = 12
"""Blocks from which a stack is deep, where their number stands in the file."""
_COUNT = re.compile(r"(?:^|[._])(?:num_(?:hidden_)?layers|n_layers?|depth|num_blocks|n_blocks|num_encoder_layers|"
                    r"num_decoder_layers|encoder_layers|decoder_layers)$")  # fmt: skip
_CONFIG = re.compile(r"^(?:self\.)?(?:config|cfg|c|args|hparams)\.")
"""What a whole model is configured by."""
_CHECKPOINTS = re.compile(
    r"checkpoint(?!_?(?:path|file|dir|name|url|s\b))|GradientCheckpointingLayer|\bremat\b", re.IGNORECASE
)
_CACHES = ("functools.lru_cache", "functools.cache")
_OPTIMIZERS = re.compile(r"^torch\.optim\.[A-Z]\w+$|^transformers\.(?:AdamW|Adafactor)$|^bitsandbytes\.optim\.\w+$")


def is_module_class(code: Code, node: ast.ClassDef | None) -> bool:
    """Does a class derive, by the name of a base, from ``nn.Module``?"""
    names = [code.qualified(base) for base in node.bases] if node is not None else []
    return any(name in ("torch.nn.Module", "torch.nn.modules.Module", "nn.Module") or
               name.endswith(("PreTrainedModel", "LightningModule", "ModelMixin")) for name in names)  # fmt: skip


def deep_stack(code: Code) -> Iterator[Hit]:
    """MA041."""
    text = code.text
    if _CHECKPOINTS.search(text):
        return
    for call in code.all(ast.Call):
        if code.callee(call) != "torch.nn.ModuleList" or not call.args or not isinstance(call.args[0], ast.ListComp):
            continue
        made, holder = call.args[0], code.class_of(call)
        count = _count(code, made)
        if (
            holder is not None
            and is_module_class(code, holder)
            and count
            and _is_block(code, made.elt)
            and _runs(code, holder)
        ):
            yield hit(
                code, "MA041", call, f"{holder.name} runs through {count} blocks, and this file checkpoints nothing"
            )


def _count(code: Code, made: ast.ListComp) -> str:
    source = made.generators[0].iter
    if not isinstance(source, ast.Call) or code.callee(source) != "range" or len(source.args) != 1:
        return ""
    number = source.args[0]
    if isinstance(number, ast.Constant):
        return str(number.value) if isinstance(number.value, int) and number.value >= _DEEP else ""
    name = code.dotted(number)
    return name if _is_deep(code, made, name) else ""


def _is_deep(code: Code, made: ast.ListComp, name: str) -> bool:
    """By a default (``def __init__(self, num_layers=24)``), or as configurations of whole models say it."""
    if not _COUNT.search(name):
        return False
    if _CONFIG.match(name):
        return True
    function = code.function(made)
    if function is None:
        return False
    positional = [*function.args.posonlyargs, *function.args.args]
    given = dict(zip([each.arg for each in positional][::-1], function.args.defaults[::-1], strict=False))
    keywords = zip(function.args.kwonlyargs, function.args.kw_defaults, strict=True)
    given |= {each.arg: value for each, value in keywords if value}
    default = given.get(name)
    return isinstance(default, ast.Constant) and isinstance(default.value, int) and default.value >= _DEEP


def _is_block(code: Code, made: ast.expr) -> bool:
    """One that this file defines as a plain module: what another base class checkpoints cannot be seen from here."""
    name = code.callee(made)
    own = next((each for each in code.all(ast.ClassDef) if each.name == name), None)
    return own is not None and is_module_class(code, own) and not name.endswith(("Norm", "Linear", "Embedding"))


def _runs(code: Code, holder: ast.ClassDef) -> bool:
    return any(isinstance(each, ast.FunctionDef) and each.name == "forward" and any(code.inside(each, ast.For))
               for each in holder.body)  # fmt: skip


def kept_in_forward(code: Code) -> Iterator[Hit]:
    """MA045."""
    for function in code.functions:
        holder = code.parent(function)
        if function.name != "forward" or not isinstance(holder, ast.ClassDef) or not is_module_class(code, holder):
            continue
        for call in code.calls(function):
            func = call.func
            if not isinstance(func, ast.Attribute) or func.attr != "append" or len(call.args) != 1:
                continue
            name = code.dotted(func.value)
            if (
                name.startswith("self.")
                and not _is_set_again(code, holder, name)
                and _is_tensor(code, function, call.args[0])
            ):
                yield hit(code, "MA045", call, f"{name} keeps {words(call.args[0])} of every call")


def _is_set_again(code: Code, holder: ast.ClassDef, name: str) -> bool:
    """Anywhere but in the constructor: in another method, class or function of the file."""
    last = name.removeprefix("self.")
    for function in code.functions:
        made = function.name == "__init__" and code.parent(function) is holder
        if any(bound.endswith("." + last) for bound in code.bindings(function)) and not made:
            return True
        for call in code.calls(function):
            func = call.func
            if (
                isinstance(func, ast.Attribute)
                and func.attr in ("clear", "pop", "popleft", "reset")
                and (code.dotted(func.value).endswith("." + last))
            ):
                return True
    return any(isinstance(target, ast.Subscript) and code.dotted(target.value).endswith("." + last)
               for each in code.all(ast.Delete) for target in each.targets)  # fmt: skip


def _is_tensor(code: Code, function: Function, node: ast.expr) -> bool:  # noqa: PLR0911 - one for each form
    """An argument of forward, or what a call in it makes; not off the device, and with its history."""
    if isinstance(node, ast.Name):
        binding = code.binding(node)
        if binding is None:
            return node.id in {each.arg for each in function.args.args[1:]}
        return (
            binding.value is not None
            and isinstance(binding.value, ast.Call | ast.BinOp)
            and _is_tensor(code, function, binding.value)
        )
    if isinstance(node, ast.BinOp):
        return _is_tensor(code, function, node.left) or _is_tensor(code, function, node.right)
    if not isinstance(node, ast.Call):
        return False
    name = code.callee(node)
    if name.startswith("self._"):
        return False
    if name.startswith(("torch.nn.functional.", "torch.matmul", "torch.softmax", "torch.bmm", "self.")):
        return name.count(".") <= 3 and not name.endswith((".item", ".tolist", ".cpu"))
    func = node.func
    return (
        isinstance(func, ast.Attribute)
        and func.attr in ("detach", "clone", "softmax", "mean", "float")
        and (_is_tensor(code, function, func.value))
    )


def cached(code: Code) -> Iterator[Hit]:
    """MA046."""
    for function in code.functions:
        decorators = [each.func if isinstance(each, ast.Call) else each for each in function.decorator_list]
        if not any(code.qualified(each) in _CACHES for each in decorators):
            continue
        holder = code.parent(function)
        static = any(code.qualified(each) in ("staticmethod", "classmethod") for each in function.decorator_list)
        tensors = [each.arg for each in function.args.args if _says_tensor(code, each.annotation)]
        if isinstance(holder, ast.ClassDef) and is_module_class(code, holder) and not static:
            yield hit(
                code, "MA046", function, f"the cache of {holder.name}.{function.name}() keeps every {holder.name} alive"
            )
        elif tensors:
            yield hit(
                code,
                "MA046",
                function,
                f"the cache of {function.name}() keeps every {tensors[0]} that it was called with",
            )


def _says_tensor(code: Code, annotation: ast.expr | None) -> bool:
    return annotation is not None and any(
        code.qualified(each) in ("torch.Tensor", "torch.nn.Module") for each in ast.walk(annotation)
    )


def data_parallel(code: Code) -> Iterator[Hit]:
    """MA047."""
    for call in code.all(ast.Call):
        if code.callee(call) in ("torch.nn.DataParallel", "torch.nn.parallel.DataParallel") and not _never_runs(
            code, call
        ):
            yield hit(code, "MA047", call, f"{words(call.func)} gathers outputs and gradients on one GPU")


def _never_runs(code: Code, call: ast.Call) -> bool:
    """A local one that only reads a state dict with its names, and is unwrapped or dropped."""
    statement, function = code.parent(call), code.function(call)
    if not isinstance(statement, ast.Assign) or function is None or code.loops(call):
        return False
    target = statement.targets[0]
    if not isinstance(target, ast.Name) or len(statement.targets) > 1:
        return False
    return all(
        isinstance(user := code.parent(name), ast.Attribute)
        and user.attr in ("load_state_dict", "state_dict", "module")
        for name in _reads(code, function, target.id, statement)
    )


def _reads(code: Code, function: Function, name: str, statement: ast.Assign) -> Iterator[ast.Name]:
    """Where a name means what a statement gave it; those of nested functions may."""
    for each in ast.walk(function):
        if isinstance(each, ast.Name) and each.id == name and isinstance(each.ctx, ast.Load):
            binding = code.binding(each)
            if code.names_scope(each) is not function or (binding is not None and binding.node is statement):
                yield each


def copied(code: Code) -> Iterator[Hit]:
    """MA049."""
    for call in code.all(ast.Call):
        if (
            code.callee(call) != "copy.deepcopy"
            or not call.args
            or not any(trains(code, loop) for loop in code.loops(call))
        ):
            continue
        what = call.args[0]
        inner = what.func.value if isinstance(what, ast.Call) and isinstance(what.func, ast.Attribute) and (
            what.func.attr == "state_dict"
        ) else what  # fmt: skip
        if is_model(code, inner) and not _on_host(code, call):
            yield hit(code, "MA049", call, f"{words(call)} takes the model's size once more on its device")


def _on_host(code: Code, call: ast.Call) -> bool:
    parent = code.parent(call)
    return isinstance(parent, ast.Attribute) and parent.attr in ("cpu", "to")


def optimizer_in_loop(code: Code) -> Iterator[Hit]:
    """MA050."""
    for call in code.all(ast.Call):
        loops = code.loops(call)
        if not _OPTIMIZERS.match(code.callee(call)) or not loops or not trains(code, loops[0]):
            continue
        loop = loops[0]
        inner = any(trains(code, each) for each in code.inside(loop, ast.For, ast.While))
        within = {id(each) for each in ast.walk(loop)}
        of = [each for arg in [*call.args[:1], *(one.value for one in call.keywords)] for each in ast.walk(arg)]
        fresh = any(
            (binding := code.binding(each)) is not None and id(binding.node) in within
            for each in of if isinstance(each, ast.Name | ast.Attribute) and code.dotted(each)
        )  # fmt: skip
        per_round = is_over_epochs(code, loop) or is_over_data(code, loop) or not inner
        if not fresh and per_round and not any(isinstance(up, ast.If) for up in code.above(call) if id(up) in within):
            yield hit(
                code, "MA050", call, f"{words(call.func)} is made, with new state, in every round of the training loop"
            )
