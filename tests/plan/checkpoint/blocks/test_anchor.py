"""The memory-time curve: the proved plan is on it, and nothing on it contradicts what was traced."""

from typing import Any, cast

from hypothesis import assume, given
from hypothesis import strategies as st

from memplan.plan.checkpoint.blocks.answer.records import ParetoPoint
from memplan.plan.checkpoint.blocks.planning import anchored
from memplan.plan.checkpoint.blocks.problem.records import BlockChoice, OptimalChoice
from memplan.plan.checkpoint.blocks.prove.records import Proof, TracedPlan
from memplan.plan.checkpoint.blocks.solve.curve import CurvePoint
from memplan.units import Bytes

STEP = 10.0


def traced(index: int, live: int, lost: int, extra: float) -> TracedPlan:
    return TracedPlan(
        choice=BlockChoice(options=(index,)),
        probe=cast("Any", None),
        live=(live,),
        device_bytes=live + lost,
        seconds=STEP + extra,
        flops=0,
    )


def proved(found: list[TracedPlan], best: int) -> Proof:
    result = OptimalChoice(choice=found[best].choice, seconds=0.0)
    return Proof(
        result=result,
        problem=cast("Any", None),
        traced=found[best],
        found=tuple(found),
        limit=result,
        solve_seconds=0.0,
    )


def points(sizes: list[tuple[int, float]], first: int) -> tuple[CurvePoint, ...]:
    return tuple(
        CurvePoint(peak_bytes=Bytes(live), seconds=extra, choice=BlockChoice(options=(first + index,)))
        for index, (live, extra) in enumerate(sizes)
    )


sizes = st.tuples(st.integers(1, 1000), st.floats(0, 10))


@given(st.lists(st.tuples(sizes, st.integers(0, 300)), min_size=1, max_size=6), st.lists(sizes, min_size=1), st.data())
def test_the_curve_falls_and_agrees_with_what_was_traced(
    plans: list[tuple[tuple[int, float], int]], others: list[tuple[int, float]], data: st.DataObject
) -> None:
    found = [traced(0, 1001, plans[0][1], 0.0)]
    found += [traced(index + 1, live, lost, extra) for index, ((live, extra), lost) in enumerate(plans)]
    best = data.draw(st.integers(0, len(found) - 1))
    plan = found[best]
    # What is chosen is never worse in both than something else that was traced.
    assume(not any(each.device_bytes < plan.device_bytes and each.seconds < plan.seconds for each in found))
    shown = anchored(points(others, len(found)), proved(found, best))
    chosen = ParetoPoint(
        peak_bytes=Bytes(plan.device_bytes), overhead_ratio=(plan.seconds - found[0].seconds) / found[0].seconds
    )
    assert chosen in shown
    assert [point.peak_bytes for point in shown] == sorted({point.peak_bytes for point in shown})
    times = [point.overhead_ratio for point in shown]
    assert times == sorted(set(times), reverse=True)
    assert min(each.device_bytes for each in found) <= shown[0].peak_bytes


def test_what_allocators_lose_is_interpolated() -> None:
    found = [traced(0, 1000, 300, 0.0), traced(1, 600, 100, 2.0)]
    shown = anchored(points([(800, 1.0)], 2), proved(found, 1))
    assert [(point.peak_bytes, point.overhead_ratio) for point in shown] == [(700, 0.2), (1000, 0.1), (1300, 0.0)]


def test_a_choice_that_was_traced_stands_where_it_was_traced() -> None:
    found = [traced(0, 1000, 300, 0.0), traced(1, 600, 100, 2.0)]
    shown = anchored(points([(600, 2.0), (500, 3.0)], 1), proved(found, 1))
    # The other one would be smaller than anything that was traced.
    assert [point.peak_bytes for point in shown] == [700, 1300]


def test_nothing_asked_nothing_shown() -> None:
    assert anchored((), proved([traced(0, 1000, 300, 0.0)], 0)) == ()
