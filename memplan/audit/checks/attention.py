"""Attention that writes its matrix out, and logits that are cast for the loss."""

import ast
import re
from collections.abc import Iterator

from memplan.audit.code import Code
from memplan.audit.hits import constant, hit, keyword, words
from memplan.audit.records import Hit

_MATMUL = frozenset({"torch.matmul", "torch.bmm", "torch.einsum", "torch.baddbmm"})
_TRANSPOSES = frozenset({"transpose", "permute", "mT", "T", "swapaxes", "swapdims", "t"})
_FUSED = re.compile(
    r"scaled_dot_product_attention|ALL_ATTENTION_FUNCTIONS|flash_attn|xformers|memory_efficient_attention|sdpa",
    re.IGNORECASE,
)
_READS_MAPS = re.compile(r"attentions\b|attn_maps?\b|attention_maps?\b|output_attentions")
_SOFTMAX = frozenset({"torch.softmax", "torch.nn.functional.softmax", "self.softmax"})
"""Functions; anything else of the name is a tensor's method."""
_LOSSES = frozenset({"cross_entropy", "CrossEntropyLoss", "nll_loss", "loss_function", "loss_fct"})
_DEPTH = 10


def written_out(code: Code) -> Iterator[Hit]:
    """MA042: softmax(q @ kᵀ) @ v; not in a file that has a fused one, too."""
    if _FUSED.search(code.text):
        return
    for node in code.all(ast.BinOp, ast.Call):
        weights = _left_of_product(code, node)
        softmax = _softmax(code, weights, _DEPTH) if weights is not None else None
        if softmax is not None and _is_scores(code, _under(code, softmax), _DEPTH):
            yield hit(code, "MA042", softmax, f"{words(softmax)} is written out, and so is what it is made of")


def _left_of_product(code: Code, node: ast.AST) -> ast.expr | None:
    if isinstance(node, ast.BinOp):
        return node.left if isinstance(node.op, ast.MatMult) else None
    name = code.callee(node)
    assert isinstance(node, ast.Call)  # noqa: S101 - the other type that was asked for
    if name == "torch.einsum" and len(node.args) == 3:
        return node.args[1]
    if name in _MATMUL and len(node.args) == 2:
        return node.args[0]
    func = node.func
    if (
        isinstance(func, ast.Attribute)
        and func.attr in ("matmul", "bmm")
        and len(node.args) == 1
        and name not in _MATMUL
    ):
        return func.value
    return None


def _softmax(code: Code, node: ast.expr, depth: int) -> ast.Call | None:
    """The softmax that a value is made by, through casts, dropout and masks."""
    if depth <= 0:
        return None
    match node:
        case ast.Name():
            binding = code.binding(node)
            value = binding.value if binding is not None and not binding.part else None
            return _softmax(code, value, depth - 1) if value is not None else None
        case ast.Call(func=func):
            if _is_softmax(code, node):
                return node
            if isinstance(func, ast.Attribute) and func.attr in (
                "to",
                "type_as",
                "type",
                "view",
                "float",
                "half",
                "masked_fill",
            ):
                return _softmax(code, func.value, depth - 1)
            last = code.callee(node).rpartition(".")[2]
            return _softmax(code, node.args[0], depth - 1) if "drop" in last and node.args else None
        case _:
            return None


def _is_softmax(code: Code, node: ast.Call) -> bool:
    name = code.callee(node)
    if name in _SOFTMAX:
        return bool(node.args)
    return isinstance(node.func, ast.Attribute) and node.func.attr == "softmax" and not name.startswith("torch.")


def _under(code: Code, softmax: ast.Call) -> ast.expr:
    """What the softmax is of: ``F.softmax(x)``, ``x.softmax(-1)``."""
    if isinstance(softmax.func, ast.Attribute) and code.callee(softmax) not in _SOFTMAX:
        return softmax.func.value
    return softmax.args[0]


def _is_scores(code: Code, node: ast.expr | None, depth: int) -> bool:  # noqa: PLR0911 - one for each form
    """A product with something transposed, scaled, masked or shifted."""
    if node is None or depth <= 0:
        return False
    match node:
        case ast.Name():
            binding = code.binding(node)
            return binding is not None and not binding.part and _is_scores(code, binding.value, depth - 1)
        case ast.BinOp(left=left, right=right, op=op):
            if isinstance(op, ast.MatMult):
                return _is_transposed(code, right)
            return _is_scores(code, left, depth - 1) or _is_scores(code, right, depth - 1)
        case ast.Call(func=func, args=args):
            name = code.callee(node)
            if name == "torch.einsum":
                return len(args) == 3
            if name in _MATMUL:
                return any(_is_transposed(code, each) for each in args[:2])
            if not isinstance(func, ast.Attribute) or name.startswith("torch."):
                return False
            if func.attr in ("matmul", "bmm") and args:
                return _is_transposed(code, args[0])
            return _is_scores(code, func.value, depth - 1)
        case _:
            return False


def _is_transposed(code: Code, node: ast.expr) -> bool:
    if isinstance(node, ast.Name):
        if re.search(r"(?:_t|_T|T|_transposed)$", node.id):
            return True
        binding = code.binding(node)
        return (
            binding is not None
            and isinstance(binding.value, ast.Call | ast.Attribute)
            and _ends_transposed(binding.value)
        )
    return _ends_transposed(node)


def _ends_transposed(node: ast.expr) -> bool:
    if isinstance(node, ast.Call):
        node = node.func
    return isinstance(node, ast.Attribute) and node.attr in _TRANSPOSES


def eager_asked_for(code: Code) -> Iterator[Hit]:
    """MA043."""
    text = code.text
    for call in code.all(ast.Call):
        asked = keyword(call, "attn_implementation") or keyword(call, "_attn_implementation")
        if asked is not None and constant(asked) == "eager" and not _READS_MAPS.search(text):
            yield hit(code, "MA043", asked, 'attn_implementation="eager" writes attention matrices out')


def cast_logits(code: Code) -> Iterator[Hit]:
    """MA044."""
    for call in code.all(ast.Call):
        func = call.func
        if not isinstance(func, ast.Attribute) or not _casts(code, call, func):
            continue
        name = code.dotted(func.value).rpartition(".")[2]
        if name not in ("logits", "lm_logits", "shift_logits", "lm_head_logits"):
            continue
        scope = code.names_scope(call)
        if any(code.callee(each).rpartition(".")[2] in _LOSSES for each in code.calls(scope)) and _speaks_tokens(scope):
            yield hit(code, "MA044", call, f"{words(call)} makes the vocabulary's logits once more in fp32")


def _casts(code: Code, call: ast.Call, func: ast.Attribute) -> bool:
    if func.attr == "float":
        return not call.args
    return func.attr == "to" and bool(call.args) and code.qualified(call.args[0]) == "torch.float32"


def _speaks_tokens(scope: ast.AST) -> bool:
    """A language model's head, not a classifier's."""
    return any(
        "vocab" in name or "lm_head" in name
        for each in ast.walk(scope)
        for name in (getattr(each, "attr", None) or getattr(each, "id", None) or getattr(each, "arg", None) or "",)
    )
