"""Scratch of elementwise ops; hardly any has some."""

from collections.abc import Mapping

from memplan.tracing.scratch.rules import Call, Rule, Scratch, Script

# A Python number reaches pow(Scalar, Tensor) as a double; observed as 8 bytes in real traces (torch 2.1 and 2.6).
_SCALAR_BYTES = 8


def power_of_scalar(call: Call) -> Script | None:
    """``pow(2.0, x)`` puts the base on the device unless it is one (ATen/native/Pow.cpp ``pow_Scalar_out``)."""
    if call.args[0] == 1:
        return None
    return Script(after=(Scratch("alloc", "base", _SCALAR_BYTES),))


POINTWISE_RULES: Mapping[str, Rule] = {"aten.pow.Scalar": power_of_scalar}
"""Op name → rule."""
