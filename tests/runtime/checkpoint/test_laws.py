"""Laws over random chains and random plans, all actions and segments mixed."""

import json
from collections.abc import Sequence

from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn

import memplan
from memplan.runtime.checkpoint.plan_file import parse_plan, plan_text
from memplan.runtime.checkpoint.records import Action, BlockPlan, CheckpointPlan, SavedOp, Segment
from memplan.runtime.checkpoint.snippet import stand_alone_code
from tests.runtime.checkpoint.chains import Block, Chain, Plain, assert_equal, seeded, step
from tests.runtime.checkpoint.saved import ROW, kept

DEPTH = 5
KINDS = (Block, Plain)


class Mixed(Chain):
    """A chain of blocks of several kinds."""

    def __init__(self, kinds: Sequence[type[nn.Module]]) -> None:
        chosen = iter(kinds)
        super().__init__(len(kinds), lambda: next(chosen)())  # noqa: PLW0108  # one of the kinds at each call


def segments(draw: st.DrawFn, first: int, end: int, depth: int = 3) -> list[tuple[int, int]]:
    """Some segments within a range of blocks, and some within these."""
    found = []
    place = first
    while depth and end - place >= 2:
        length = draw(st.integers(1, end - place))
        # The whole range would be the segment around it once more.
        if length >= 2 and (length < end - first or depth == 3):
            found += [(place, place + length), *segments(draw, place, place + length, depth - 1)]
        place += length
    return found


@st.composite
def plans(draw: st.DrawFn) -> CheckpointPlan:
    ranges = segments(draw, 0, DEPTH)
    inside = {index for begin, end in ranges for index in range(begin, end)}
    chosen = []
    for index in range(DEPTH):
        action = draw(st.sampled_from([one for one in Action if one is not Action.OFFLOAD or index not in inside]))
        calls = draw(st.sampled_from([(0,), (1,), (0, 1)])) if action is Action.SELECTIVE else ()
        saved = (SavedOp(op="aten.addmm.default", calls=calls),) if calls else ()
        chosen.append(BlockPlan(module=f"layers.{index}", action=action, saved=saved))
    return CheckpointPlan(
        blocks=tuple(chosen),
        segments=tuple(Segment(modules=tuple(f"layers.{index}" for index in range(*ends))) for ends in ranges),
        prefetch=draw(st.booleans()),
    )


kinds = st.lists(st.sampled_from(KINDS), min_size=DEPTH, max_size=DEPTH)


@given(plans(), kinds)
def test_no_plan_changes_a_step(plan: CheckpointPlan, kinds: list[type[nn.Module]]) -> None:
    plain, planned = seeded(lambda: Mixed(kinds)), seeded(lambda: Mixed(kinds))
    with memplan.apply(planned, plan):
        for _ in range(2):
            assert_equal(step(planned), step(plain))
    assert_equal(step(planned), step(plain))


def expected_bytes(plan: CheckpointPlan) -> int:
    """What a chain of plain blocks keeps, by the plan's own words."""
    # Input, cosine, wide result, sine.
    whole = (1 + 1 + 4 + 4) * ROW
    saved = {(0,): 4 * ROW, (1,): ROW, (0, 1): 5 * ROW}
    inside = {name for segment in plan.segments for name in segment.modules}
    outermost = [one for one in plan.segments if not any(set(one.modules) < set(two.modules) for two in plan.segments)]
    found = ROW * len(outermost) + ROW  # each one's first input, and the head's
    for block in plan.blocks:
        if block.module in inside:
            continue
        match block.action:
            case Action.KEEP:
                found += whole
            case Action.CHECKPOINT:
                found += ROW
            case Action.SELECTIVE:
                found += ROW + saved[block.saved[0].calls]
    return found


@settings(max_examples=30)
@given(plans().filter(lambda plan: all(block.action is not Action.OFFLOAD for block in plan.blocks)))
def test_what_a_plan_keeps_is_what_it_says(plan: CheckpointPlan) -> None:
    planned = seeded(lambda: Chain(DEPTH, Plain))
    memplan.apply(planned, plan)
    assert kept(planned) == expected_bytes(plan)


@settings(max_examples=10)
@given(plans())
def test_plans_survive_files_and_become_code(plan: CheckpointPlan) -> None:
    assert parse_plan(json.loads(plan_text(plan))) == plan
    compile(stand_alone_code(plan), "pasted.py", "exec")


def test_applying_nothing_changes_nothing() -> None:
    model = seeded(Chain)
    before = {name: dict(module.__dict__) for name, module in model.named_modules()}
    keep = tuple(BlockPlan(module=f"layers.{index}", action=Action.KEEP) for index in range(4))
    memplan.apply(model, CheckpointPlan(blocks=keep)).remove()
    assert {name: dict(module.__dict__) for name, module in model.named_modules()} == before
