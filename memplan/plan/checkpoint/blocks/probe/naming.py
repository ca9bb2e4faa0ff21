"""Names of positions, for people."""

from memplan.plan.checkpoint.blocks.probe.cut import Cut, Stretch
from memplan.tracing.records import Trace

_MOST_MODULES = 2
"""Modules that the name of a stretch between blocks lists."""


def position_name(trace: Trace, cut: Cut, index: int) -> str:
    """``forward of layers.3``, ``backward of lm_head``, ``optimizer``; ``forward after layers.3`` outside modules."""
    stretch = cut.stretches[index]
    if stretch.block is not None:
        return f"{stretch.phase} of {cut.modules[stretch.block]}"
    if stretch.phase == "optimizer":
        return "optimizer"
    modules = dict.fromkeys(op.module for op in trace.ops[stretch.first_op : stretch.end_op] if op.module)
    if modules:
        more = " and others" if len(modules) > _MOST_MODULES else ""
        return f"{stretch.phase} of {', '.join(list(modules)[:_MOST_MODULES])}{more}"
    before = next((each for each in reversed(cut.stretches[:index]) if each.block is not None), None)
    return f"{stretch.phase} {_after(cut, before)}"


def _after(cut: Cut, before: Stretch | None) -> str:
    if before is None or before.block is None:
        return "before the first block"
    return f"after {cut.modules[before.block]}"
