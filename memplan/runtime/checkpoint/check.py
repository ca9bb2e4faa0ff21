"""What every plan must hold by itself, whatever the model. Torch-free."""

from collections import Counter
from collections.abc import Iterator
from itertools import combinations

from memplan.errors import UsageError
from memplan.runtime.checkpoint.records import Action, BlockPlan, CheckpointPlan, Segment

HINT = 'see docs/checkpoint-plan.md, or write {"modules": ["layers.0", "layers.1"]}'
"""What to do about a plan that cannot be used."""


def check_plan(plan: CheckpointPlan, where: str | None = None) -> None:
    """Is the plan consistent?

    Raises:
        UsageError: It is not; names every contradiction.
    """
    if problems := list(_contradictions(plan)):
        all_of_them = f" {problems[0]}" if len(problems) == 1 else "".join(f"\n  - {problem}" for problem in problems)
        raise UsageError(f"the plan cannot be used:{all_of_them}", where=where, hint=HINT)


def _contradictions(plan: CheckpointPlan) -> Iterator[str]:
    # A plan that memplan made may find that nothing is to be done; one written by hand has forgotten something.
    if not plan.blocks and not plan.segments and plan.fingerprint is None:
        yield "it names no modules"
    if "" in {name for block in plan.blocks for name in (block.module, *(entry.op for entry in block.saved))}:
        yield "a module or an op has no name"
    counts = Counter(block.module for block in plan.blocks)
    yield from (f"{name} stands in it {count} times" for name, count in counts.items() if count > 1)
    for block in plan.blocks:
        yield from _block_contradictions(block)
    for outer in plan.blocks:
        inner = [block for block in plan.blocks if block.module.startswith(f"{outer.module}.")]
        yield from (reason for block in inner if (reason := _cannot_nest(outer, block)))
    for segment in plan.segments:
        yield from _segment_contradictions(plan, segment)
    yield from (reason for pair in combinations(plan.segments, 2) if (reason := _cannot_overlap(*pair)))


def _block_contradictions(block: BlockPlan) -> Iterator[str]:
    if block.saved and block.action is not Action.SELECTIVE:
        yield f"{block.module} is no selective block, but keeps {block.saved[0].op}"
    counts = Counter(entry.op for entry in block.saved)
    yield from (f"{block.module} names {op} {count} times" for op, count in counts.items() if count > 1)
    for entry in block.saved:
        if not entry.calls or min(entry.calls) < 0 or len(set(entry.calls)) < len(entry.calls):
            yield f"{block.module} keeps calls {list(entry.calls)} of {entry.op}: name each once, counted from 0"


def _cannot_nest(outer: BlockPlan, inner: BlockPlan) -> str | None:
    if Action.KEEP in {outer.action, inner.action}:
        return None
    if outer.action is not Action.CHECKPOINT or inner.action is Action.OFFLOAD:
        return f"{inner.module} ({inner.action}) stands inside {outer.module} ({outer.action}): plan one of them"
    return None


def _segment_contradictions(plan: CheckpointPlan, segment: Segment) -> Iterator[str]:
    name = segment_name(segment)
    if len(set(segment.modules)) < 2 or len(set(segment.modules)) < len(segment.modules):
        yield f"the segment {name} needs two or more blocks, each once"
    inside = [one for one in segment.modules for other in segment.modules if one.startswith(f"{other}.")]
    yield from (f"the segment {name} holds {one} and what is around it" for one in inside)
    moved = [
        block.module
        for block in plan.blocks
        if block.action is Action.OFFLOAD and any(f"{block.module}.".startswith(f"{one}.") for one in segment.modules)
    ]
    yield from (f"{one} is offloaded and stands in the segment {name}: plan one of them" for one in moved)


def _cannot_overlap(one: Segment, other: Segment) -> str | None:
    inner, outer = sorted((one.modules, other.modules), key=len)
    if set(inner).isdisjoint(outer):
        return None
    starts = range(len(outer) - len(inner) + 1)
    if len(inner) < len(outer) and any(outer[start : start + len(inner)] == inner for start in starts):
        return None
    return f"the segments {segment_name(one)} and {segment_name(other)} overlap: one must hold the other, or none of it"


def segment_name(segment: Segment) -> str:
    """``layers.0 … layers.3``."""
    return f"{segment.modules[0]} … {segment.modules[-1]}" if segment.modules else "without blocks"
