"""What a name holds: a loss, a model's output, something with a graph behind it, or a plain number.

Only what the file itself shows counts: an unknown function's result is nothing in particular.
"""

import ast
import re

from memplan.audit.code import Code
from memplan.audit.steps import gradients_off, is_backward, is_optimizer

_DEPTH = 12
"""Bindings that are followed, one behind the other."""
NO_GRAPH = frozenset({
    "item", "detach", "detach_", "tolist", "numpy", "argmax", "argmin", "argsort", "size", "numel", "dim", "long",
    "int",
    "bool", "eq", "ne", "gt", "lt", "ge", "le", "nonzero", "keys", "isnan", "isinf", "isfinite", "data_ptr",
    "clone_detached",
})  # fmt: skip
"""Methods whose result has no graph."""
NO_GRAPH_ATTRIBUTES = frozenset({"data", "grad", "shape", "device", "dtype", "requires_grad", "ndim", "is_cuda"})
"""Attributes without one."""
SMALL = frozenset({
    "argmax", "argmin", "item", "mean", "sum", "max", "min", "size", "norm", "any", "all", "numel", "loss", "topk",
    "std", "var", "prod", "shape", "sigmoid_", "eq",
})  # fmt: skip
"""Methods whose result is much smaller than the tensor."""
OFF_DEVICE = frozenset({"cpu", "numpy", "tolist", "item"})
"""Methods whose result is not in a GPU's memory."""
_LOSS = re.compile(r"(?:^|[._])(?:criterion\w*|loss_(?:fn|func|function)\w*|compute_loss|\w*_?loss)$", re.IGNORECASE)
_NO_LOSS = re.compile(
    r"(?:^|[._])_*(?:make|empty|get|init|build|create|set|log|print|reset|zero|update|plot|save|record|reduce|gather|"
    r"average|format|report)_|empty|\.add_loss$",
    re.IGNORECASE,
)
"""Functions about losses that need not return one of this step."""
_MODEL = re.compile(r"(?:^|[._])(?:(?:\w+_)?(?:model|net|network|unet|transformer)|generator|discriminator|net_?[DG])$")
_MODULE_METHODS = frozenset({
    "parameters", "named_parameters", "train", "eval", "state_dict", "load_state_dict", "requires_grad_", "modules",
    "named_modules", "register_forward_hook", "half", "bfloat16", "gradient_checkpointing_enable",
})  # fmt: skip
_TENSOR_LIBRARIES = ("torch.", "einops.")
_MAKERS = frozenset({
    "torch.tensor", "torch.zeros", "torch.ones", "torch.empty", "torch.full", "torch.arange", "torch.rand",
    "torch.randn",
    "torch.randint", "torch.as_tensor", "torch.from_numpy", "torch.load", "torch.argmax", "torch.device", "torch.eye",
    "torch.no_grad", "torch.manual_seed", "torch.is_tensor", "torch.numel", "torch.isnan", "torch.isfinite",
    "torch.isinf", "torch.linspace", "torch.zeros_like", "torch.ones_like", "torch.rand_like", "torch.randn_like",
    "torch.equal", "torch.allclose", "torch.topk", "torch.argsort", "torch.sort", "torch.randperm", "torch.LongTensor",
    "torch.FloatTensor", "torch.Tensor", "torch.empty_like", "torch.full_like", "torch.Generator", "torch.compile",
    "torch.any", "torch.all", "torch.eq", "torch.bernoulli", "torch.multinomial", "torch.distributed",
})  # fmt: skip
"""Functions of torch whose result has no history."""
_NO_HISTORY = re.compile(
    r"^torch\.(?:cuda|distributed|utils|optim|backends|hub|jit|profiler|nn\.(?:init|utils|parallel))\."
)


def modules(code: Code) -> frozenset[str]:
    """Dotted names that the file treats as an ``nn.Module``."""
    if ("modules", code.tree) not in code.kept:
        found = {
            code.dotted(call.func.value)
            for call in code.all(ast.Call)
            if isinstance(call.func, ast.Attribute) and call.func.attr in _MODULE_METHODS
        }
        code.kept["modules", code.tree] = frozenset(name for name in found if name and not is_optimizer(name)) - {
            "self"
        }
    answer: frozenset[str] = code.kept["modules", code.tree]
    return answer


def is_model(code: Code, node: ast.expr) -> bool:
    """Is it a network, by what the file does with it or by its name?"""
    name = code.dotted(node)
    return bool(name) and name not in code.imports and (name in modules(code) or _MODEL.search(name) is not None)


def is_model_call(code: Code, node: ast.AST) -> bool:
    """``model(x)``, ``self.model.forward(x)``; not a class or a function called model."""
    if not isinstance(node, ast.Call):
        return False
    func = node.func
    if isinstance(func, ast.Attribute) and func.attr == "forward":
        func = func.value
    if not isinstance(func, ast.Name | ast.Attribute) or not is_model(code, func) or not (node.args or node.keywords):
        return False
    name = code.dotted(func)
    return not any(each.name == name.rpartition(".")[2] for each in code.functions)


def is_loss_call(code: Code, node: ast.AST) -> bool:
    """``criterion(output, target)``, ``F.cross_entropy(…)``."""
    if not isinstance(node, ast.Call):
        return False
    name = code.callee(node)
    if name.startswith("torch.nn.functional."):
        return name.endswith(("_loss", "entropy", "_logits", "kl_div"))
    return _LOSS.search(name) is not None and _NO_LOSS.search(name) is None


def has_graph(code: Code, node: ast.expr) -> bool:
    """Does a value, where it stands, hold on to an autograd graph?"""
    return not gradients_off(code, node) and _graph(code, node, _DEPTH)


def _graph(code: Code, node: ast.expr | None, depth: int) -> bool:  # noqa: PLR0911 - one for each form
    if node is None or depth <= 0:
        return False
    match node:
        case ast.Name():
            return _name_has_graph(code, node, depth)
        case ast.Attribute(attr=attr, value=value):
            if attr in NO_GRAPH_ATTRIBUTES:
                return False
            return _name_has_graph(code, node, depth) or _graph(code, value, depth - 1)
        case ast.Subscript(value=value, slice=key):
            named = isinstance(key, ast.Constant) and isinstance(key.value, str)
            return (not named or key.value in ("loss", "logits")) and _graph(code, value, depth - 1)  # type: ignore[attr-defined]
        case ast.BinOp(left=left, right=right):
            return _graph(code, left, depth - 1) or _graph(code, right, depth - 1)
        case ast.UnaryOp(operand=operand):
            return not isinstance(node.op, ast.Not) and _graph(code, operand, depth - 1)
        case ast.IfExp(body=body, orelse=orelse):
            return _graph(code, body, depth - 1) and _graph(code, orelse, depth - 1)
        case ast.Call():
            return _call_has_graph(code, node, depth)
        case _:
            return False


def _call_has_graph(code: Code, node: ast.Call, depth: int) -> bool:
    if is_loss_call(code, node) or is_model_call(code, node):
        return not gradients_off(code, node)
    func, name = node.func, code.callee(node)
    if name.startswith(_TENSOR_LIBRARIES) or name == "sum":
        if name in _MAKERS or _NO_HISTORY.match(name):
            return False
        return any(
            _graph(code, part, depth - 1)
            for arg in node.args
            for part in (arg.elts if isinstance(arg, ast.Tuple | ast.List) else [arg])
        )
    if isinstance(func, ast.Attribute):
        return func.attr not in NO_GRAPH and _is_value(code, func.value) and _graph(code, func.value, depth - 1)
    return False


def _is_value(code: Code, node: ast.expr) -> bool:
    """A tensor's method, not one of a model or a module that was imported."""
    name = code.dotted(node)
    return not name or (name.partition(".")[0] not in code.imports and name != "self" and not is_model(code, node))


def _name_has_graph(code: Code, node: ast.Name | ast.Attribute, depth: int) -> bool:
    name = code.dotted(node)
    if not name:
        return False
    binding = code.binding(node)
    if binding is None:
        return False
    if binding.value is not None and _graph_of_binding(code, binding.value, part=binding.part, depth=depth - 1):
        return True
    # What is sent backward has a graph, whoever made it; but not what a number or a copy has replaced since.
    return any(
        (sent := _sent_backward(code, call)) is not None and code.dotted(sent) == name and code.binding(sent) == binding
        for call in code.calls(code.names_scope(node))
        if is_backward(call)
    )


def _graph_of_binding(code: Code, value: ast.expr, *, part: bool, depth: int) -> bool:
    if gradients_off(code, value):
        return False
    if not part:
        return _graph(code, value, depth)
    # One of what a call returns: of a model's outputs, perhaps; of anything else, who knows.
    return is_model_call(code, value) and not gradients_off(code, value)


def _sent_backward(code: Code, call: ast.Call) -> ast.expr | None:
    """``loss`` of ``loss.backward()``, ``scaler.scale(loss).backward()``, ``accelerator.backward(loss)``."""
    func = call.func
    if not isinstance(func, ast.Attribute):
        return None
    sent: ast.expr = func.value
    if call.args and isinstance(call.args[0], ast.Name | ast.Attribute) and not isinstance(sent, ast.Call):
        sent = call.args[0] if _manages(code.dotted(sent)) else sent
    while isinstance(sent, ast.Call):
        of = sent.args[0] if sent.args and _manages(code.dotted(sent.func)) else getattr(sent.func, "value", None)
        if of is None:
            return None
        sent = of
    return sent


def _manages(name: str) -> bool:
    """Does a name belong to what runs a backward pass for others?"""
    return re.search(r"accelerator|fabric|engine|scaler|strategy|manual|^self$|amp", name) is not None


def is_output(code: Code, node: ast.expr, depth: int = _DEPTH) -> bool:  # noqa: PLR0911 - one for each form
    """Is it as large as what a model puts out, and still on the model's device?"""
    if depth <= 0:
        return False
    match node:
        case ast.Name():
            binding = code.binding(node)
            return binding is not None and binding.value is not None and is_output(code, binding.value, depth - 1)
        case ast.Attribute(attr=attr, value=value):
            return attr in ("logits", "last_hidden_state", "hidden_states", "attentions") and is_output(
                code, value, depth - 1
            )
        case ast.Subscript(value=value, slice=key):
            if isinstance(key, ast.Constant) and key.value == "loss":
                return False
            return is_output(code, value, depth - 1)
        case ast.Call(func=func):
            if is_model_call(code, node):
                return True
            if _goes_to_host(node):
                return False
            if isinstance(func, ast.Attribute) and not code.callee(node).startswith("torch."):
                plain = func.attr not in SMALL | OFF_DEVICE | {"append"}
                return plain and func.attr in _SAME_SIZE and is_output(code, func.value, depth - 1)
            return (
                code.callee(node) in _SAME_SIZE_FUNCTIONS
                and bool(node.args)
                and is_output(code, node.args[0], depth - 1)
            )
        case _:
            return False


def _goes_to_host(call: ast.Call) -> bool:
    """Or to where something else is, which may be there."""
    given = [*call.args, *(each.value for each in call.keywords)]
    return any(
        (isinstance(each, ast.Constant) and each.value == "cpu")
        or (isinstance(each, ast.Attribute) and each.attr == "device")
        for each in given
    )


_SAME_SIZE = frozenset({
    "detach", "float", "half", "softmax", "log_softmax", "sigmoid", "squeeze", "unsqueeze", "view", "reshape", "clone",
    "contiguous", "permute", "transpose", "flatten", "exp", "to",
})  # fmt: skip
_SAME_SIZE_FUNCTIONS = frozenset({
    "torch.softmax", "torch.sigmoid", "torch.nn.functional.softmax", "torch.nn.functional.log_softmax", "torch.squeeze",
    "torch.log_softmax", "torch.nn.functional.normalize", "torch.nn.functional.sigmoid",
})  # fmt: skip
