from hypothesis import given
from hypothesis import strategies as st

from memplan.plan.checkpoint.schedule.check import ViolationKind, violations
from memplan.plan.checkpoint.schedule.figures import figures_of, unplanned
from memplan.plan.checkpoint.schedule.records import RematGraph, Schedule
from tests.plan.checkpoint.schedule.graphs import graphs, schedules

# a -> b -> c -> d, and d reads a too: keeping a costs 5 bytes while b and c are computed.
LOOP = RematGraph(
    names=("a", "b", "c", "d"),
    sizes=(5, 2, 3, 1),
    costs=(1.0, 10.0, 10.0, 10.0),
    predecessors=((), (0,), (1,), (0, 2)),
)


def reasons(graph: RematGraph, nodes: tuple[int, ...], budget: int | None = None) -> set[ViolationKind]:
    return {violation.reason for violation in violations(graph, Schedule(nodes=nodes), budget)}


def test_the_unplanned_loop_by_hand():
    figures = figures_of(LOOP, unplanned(LOOP))

    # At c: a, b and c are alive; at d: a, c and d.
    assert (figures.peak_bytes, figures.peak_at, figures.cost) == (10, 2, 31.0)


def test_computing_a_again_by_hand():
    figures = figures_of(LOOP, Schedule(nodes=(0, 1, 2, 0, 3)))

    # a b: 7; b c: 5; c a: 8; c a d: 9.
    assert (figures.peak_bytes, figures.peak_at, figures.cost) == (9, 4, 32.0)


def test_scratch_constant_memory_and_outputs_by_hand():
    graph = RematGraph(
        names=("a", "b"),
        sizes=(5, 2),
        costs=(1.0, 1.0),
        predecessors=((), ()),
        scratch=(4, 1),
        fixed_bytes=100,
        outputs=frozenset({0}),
    )

    assert figures_of(graph, unplanned(graph)).peak_bytes == 109
    assert figures_of(graph, Schedule(nodes=(1, 0))).peak_bytes == 109
    assert violations(graph, unplanned(graph), 108)[0].position == 0
    # The output stays while b is computed, though nothing reads it.
    assert not violations(graph, unplanned(graph), 109, peak_bytes=109)


@given(st.data())
def test_two_accounts_of_memory_agree(data: st.DataObject):
    graph = data.draw(graphs(most=8))
    schedule = data.draw(schedules(graph))
    figures = figures_of(graph, schedule)

    assert not violations(graph, schedule, figures.peak_bytes, cost=figures.cost, peak_bytes=figures.peak_bytes)
    over = violations(graph, schedule, figures.peak_bytes - 1)
    assert {violation.reason for violation in over} == {ViolationKind.OVER_BUDGET}
    assert over[0].position == figures.peak_at


def test_each_fault_is_named():
    assert reasons(LOOP, (0, 1, 2, 3), 10) == set()
    assert reasons(LOOP, (0, 1, 2, 3), 9) == {ViolationKind.OVER_BUDGET}
    assert reasons(LOOP, (1, 0, 1, 2, 3)) == {ViolationKind.MISSING_INPUT}
    assert reasons(LOOP, (0, 1, 2)) == {ViolationKind.MISSING_NODE}
    assert reasons(LOOP, (0, 1, 2, 3, 4)) == {ViolationKind.UNKNOWN_NODE}
    pinned = RematGraph(
        names=LOOP.names, sizes=LOOP.sizes, costs=LOOP.costs, predecessors=LOOP.predecessors, pinned=frozenset({0})
    )
    assert reasons(pinned, (0, 1, 2, 0, 3)) == {ViolationKind.PINNED_AGAIN}


def test_false_claims_are_named():
    found = violations(LOOP, unplanned(LOOP), cost=30.0, peak_bytes=9)

    assert {violation.reason for violation in found} == {ViolationKind.WRONG_COST, ViolationKind.WRONG_PEAK}
