"""Scratch of grouped products of 16-bit types: CUTLASS's arguments by group, and its tensor maps by multiprocessor.

Follows aten/src/ATen/native/cuda/GroupMM.cu (``bf16bf16_grouped_gemm_impl_sm90_sm100``). 480 bytes for 8 groups and
67,584 for 132 multiprocessors were seen on an H100 with torch 2.11 (2026-11-23). Capability 10 has another kernel, of
whose tensor maps bounds are known; elsewhere each group is a product of its own (``_grouped_mm_fallback``).
"""

from collections.abc import Mapping

from memplan.tracing.scratch.cuda_shapes import argument, round_up
from memplan.tracing.scratch.cuda_workspaces import product_workspaces
from memplan.tracing.scratch.rules import Call, Rule, Scratch, Script

_SEEN = (9, 0)
_CUTLASS_MAJORS = (9, 10)
_ALIGNED_GROUPS = 2
"""``group_alignment``: 16 bytes of pointers."""
_POINTER_BYTES, _SHAPE_BYTES, _STRIDE_BYTES = 8, 12, 8
_MATRICES = 3
_MAPS_BYTES = 4 * 128
"""Of one multiprocessor: tensor maps of both operands, of what is added and of the result."""
_MOST_MAPS = 4
"""Times as many where nobody has looked."""


def grouped(call: Call) -> Script | None:
    """``_grouped_mm(self, mat2, offs)``."""
    if call.device.capability[0] not in _CUTLASS_MAJORS:
        return Script(after=product_workspaces(call, through_lt=False))
    maps = call.device.sm_count * _MAPS_BYTES
    most = None if call.device.capability == _SEEN else _MOST_MAPS * maps
    return Script(
        after=(Scratch("alloc", "arguments", _arguments(_groups(call))), Scratch("alloc", "maps", maps, most))
    )


def _groups(call: Call) -> int:
    first, second = call.args[:2]
    if first.dim() == second.dim() == 2:
        return int(argument(call, 2, "offs").shape[0])
    return int((second if first.dim() == 2 else first).shape[0])


def _arguments(groups: int) -> int:
    pointers = round_up(groups, _ALIGNED_GROUPS) * _MATRICES * _POINTER_BYTES
    return pointers + groups * (_SHAPE_BYTES + _MATRICES * _STRIDE_BYTES)


GROUPED_RULES: Mapping[str, Rule] = {"aten._grouped_mm.default": grouped}
"""Op name → rule."""
