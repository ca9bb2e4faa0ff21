"""Scratch of sorting rows of up to 4096 elements, which needs a range to number them.

Follows aten/src/ATen/native/cuda/Sort.cpp (``sort_cuda_kernel``, ``fillSliceWithIndex``) and Sort.h. Longer rows go to
CUB, whose temporaries are not covered.
"""

from collections.abc import Mapping

from memplan.trace.scratch.cuda_shapes import INDEX_BYTES, first_tensor
from memplan.trace.scratch.rules import Call, Rule, Scratch, Script

# Sort.h should_use_small_sort.
SMALL_SORT = 4096


def _rule(dim_position: int) -> Rule:
    def rule(call: Call) -> Script | None:
        tensor = first_tensor(call)
        if tensor is None or not tensor.dim():
            return None
        dim = call.kwargs.get("dim", call.args[dim_position] if len(call.args) > dim_position else -1)
        length = tensor.shape[dim]
        if not tensor.numel() or length > SMALL_SORT:
            return None
        return Script(after=(Scratch("alloc", "range", length * INDEX_BYTES),))

    return rule


SORT_RULES: Mapping[str, Rule] = {
    "aten.sort.default": _rule(1),
    "aten.sort.stable": _rule(2),
}
"""Op name → rule."""
