"""Scratch of elementwise CPU kernels whose operands differ in type: copies in the common one.

aten/src/ATen/TensorIterator.cpp ``compute_types``: on CPU, operands of another type are copied to the common one first,
and what is written in place in another type is computed beside. Held against torch.profiler's memory events on torch
2.13.0, November 2026.
"""

from itertools import chain

import torch

from memplan.tracing.scratch.cpu_shapes import allocations, casts, common_type, nbytes, results
from memplan.tracing.scratch.rules import Call, Rule, Scratch, Script

_COMPARISONS = "eq ne lt le gt ge"
_ARITHMETIC = "add sub mul div rsub"
_OTHERS = """
    div.Tensor_mode pow.Tensor_Tensor remainder.Tensor fmod.Tensor bitwise_and.Tensor bitwise_or.Tensor
    bitwise_xor.Tensor clamp.Tensor clamp_min.Tensor clamp_max.Tensor xlogy.Tensor copysign.Tensor lerp.Tensor
    lerp.Scalar maximum.default minimum.default fmax.default fmin.default atan2.default hypot.default
    floor_divide.default logaddexp.default logaddexp2.default logical_and.default logical_or.default
    logical_xor.default addcmul.default addcdiv.default where.self heaviside.default nextafter.default igamma.default
    igammac.default addr.default
"""


def cast_operands(call: Call) -> Script | None:
    """Copies of operands that have another type than the common one."""
    values = [*chain(call.args, call.kwargs.values())]
    operands = [value for value in values if isinstance(value, torch.Tensor)]
    if call.name == "aten.where.self":
        operands = operands[1:]
    out = results(call)[0]
    writes_into = call.name.split(".")[1].endswith("_")
    common = common_type(operands, values) if writes_into or out.dtype is torch.bool else out.dtype
    copies = casts(operands, common)
    if writes_into and out.dtype is not common:
        copies["result"] = out.numel() * common.itemsize
    return allocations(copies) if copies else None


def compared(call: Call) -> Script | None:
    """ReduceOps.cpp cpu_equal: operands are copied to the common type, unless their shapes tell them apart."""
    one, other = call.args
    return allocations(casts(call.args, common_type(call.args))) if one.shape == other.shape else None


def joined(call: Call) -> Script | None:
    """TensorShape.cpp cat_out_cpu: tensors of another type than the result are copied as they are, each in turn."""
    casts = [each for each in call.args[0] if each.dtype is not call.out.dtype and each.numel()]
    lines = [
        line
        for index, each in enumerate(casts)
        for line in (Scratch("alloc", f"part {index}", nbytes(each)), Scratch("free", f"part {index}"))
    ]
    return Script(after=tuple(lines)) if lines else None


def _both(name: str) -> tuple[str, str]:
    operator, _, overload = name.partition(".")
    return f"aten.{operator}.{overload}", f"aten.{operator}_.{overload}"


_NAMES = (
    *_OTHERS.split(),
    *(f"{name}.{overload}" for name in _COMPARISONS.split() for overload in ("Tensor", "Scalar")),
    *(f"{name}.{overload}" for name in _ARITHMETIC.split() for overload in ("Tensor", "Scalar")),
)

RULES: dict[str, Rule] = {both: cast_operands for name in _NAMES for both in _both(name)}
RULES |= dict.fromkeys(("aten.cat.default", "aten.stack.default"), joined)
RULES["aten.equal.default"] = compared
"""Op name → rule."""
