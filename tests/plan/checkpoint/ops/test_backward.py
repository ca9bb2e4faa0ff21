"""Backward in another order: the same problem, no more memory at any time, less where branches can wait."""

from hypothesis import given, strategies

from memplan.plan.checkpoint.ops.solve.backward import backward_order, renumbered
from memplan.plan.checkpoint.schedule.check import violations
from memplan.plan.checkpoint.schedule.figures import figures_of, unplanned
from memplan.plan.checkpoint.schedule.records import RematGraph, Schedule
from tests.plan.checkpoint.ops.cases import CASES, stated

NOTHING_IS_WORTH_IT = -1.0


@strategies.composite
def steps(draw: strategies.DrawFn) -> tuple[RematGraph, int]:
    """A chain of forward, a boundary that reads its end, and ops of backward that read what they like before them."""
    forward, backward = draw(strategies.integers(1, 5)), draw(strategies.integers(1, 12))
    boundary, count = forward, forward + 1 + backward
    sizes = draw(strategies.lists(strategies.integers(0, 9), min_size=count, max_size=count))
    sizes[boundary] = 0
    reads = [(node - 1,) if node else () for node in range(boundary + 1)]
    for node in range(boundary + 1, count):
        others = draw(strategies.sets(strategies.integers(0, node - 1), max_size=3)) - {boundary}
        reads.append(tuple(sorted({boundary, *others})))
    graph = RematGraph(
        names=tuple(map(str, range(count))),
        sizes=tuple(sizes),
        costs=(1.0,) * count,
        predecessors=tuple(reads),
        scratch=tuple(draw(strategies.lists(strategies.integers(0, 5), min_size=count, max_size=count))),
        pinned=frozenset({boundary}),
        outputs=frozenset(draw(strategies.sets(strategies.integers(boundary + 1, count - 1), max_size=3))),
    )
    return graph, boundary


@given(step=steps(), price=strategies.sampled_from([NOTHING_IS_WORTH_IT, 0.2, 10.0]))
def test_another_order_is_a_valid_schedule_that_leaves_forward_alone(step: tuple[RematGraph, int], price: float):
    graph, boundary = step
    order = backward_order(graph, boundary, [()] * len(graph.names), price)
    assert not violations(graph, Schedule(nodes=order))
    assert order[: boundary + 1] == tuple(range(boundary + 1))
    assert sorted(order) == list(range(len(graph.names)))


@given(step=steps())
def test_where_everything_is_kept_no_order_found_takes_more_than_the_given_one(step: tuple[RematGraph, int]):
    graph, boundary = step
    order = backward_order(graph, boundary, [()] * len(graph.names), NOTHING_IS_WORTH_IT)
    before, after = figures_of(graph, unplanned(graph)), figures_of(graph, Schedule(nodes=order))
    assert after.peak_bytes <= before.peak_bytes
    assert figures_of(renumbered(graph, order), unplanned(graph)) == after


def test_a_branch_waits_until_the_other_is_done_with_what_only_it_needs():
    """Two large values of backward, each with one reader: autograd makes both before either is read."""
    graph = RematGraph(
        names=("kept", "boundary", "left", "right", "of left", "of right", "sum"),
        sizes=(1, 0, 8, 8, 1, 1, 1),
        costs=(1.0,) * 7,
        predecessors=((), (0,), (0, 1), (0, 1), (2,), (3,), (4, 5)),
        pinned=frozenset({1}),
        outputs=frozenset({6}),
    )
    order = backward_order(graph, 1, [()] * 7, NOTHING_IS_WORTH_IT)
    assert figures_of(graph, unplanned(graph)).peak_bytes == 17
    assert figures_of(graph, Schedule(nodes=order)).peak_bytes == 10


def test_what_comes_with_an_op_follows_it():
    for make in CASES.values():
        _, problem = stated(*make())
        order = backward_order(problem.graph, problem.boundary, problem.companions, 1.0)
        place = {node: number for number, node in enumerate(order)}
        for node, companions in enumerate(problem.companions):
            assert [place[each] - place[node] for each in companions] == list(range(1, len(companions) + 1))
