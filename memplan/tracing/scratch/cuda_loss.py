"""Scratch of losses, patches and searches on CUDA: what every device takes, and buffers of the loss's reduction."""

from collections.abc import Mapping

from memplan.tracing.scratch.common_kernels import (
    BOUNDARIES,
    ELEMENTWISE_LOSSES,
    PATCHES,
    is_reduced,
    loss_shape,
)
from memplan.tracing.scratch.cuda_reduction import SUM, reduction_scratch
from memplan.tracing.scratch.cuda_shapes import Layout
from memplan.tracing.scratch.rules import Call, Rule, Script


def _reduced(elements: Rule) -> Rule:
    def rule(call: Call) -> Script | None:
        script = elements(call)
        if script is None or not is_reduced(call):
            return script
        layout = Layout.dense(loss_shape(call), call.out.dtype)
        dims = range(len(layout.shape))
        sums = reduction_scratch(call.device, layout, dims, call.out.dtype, SUM)
        return Script(before=script.before, after=(*script.after, *sums))

    return rule


LOSS_RULES: Mapping[str, Rule] = {
    **{name: _reduced(rule) for name, rule in ELEMENTWISE_LOSSES.items()},
    **PATCHES,
    **BOUNDARIES,
}
"""Op name → rule."""
