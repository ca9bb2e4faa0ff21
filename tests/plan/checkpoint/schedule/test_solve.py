import math
import time

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from memplan.plan.checkpoint.graph_file import read_instance
from memplan.plan.checkpoint.schedule.bound import least_extra_cost
from memplan.plan.checkpoint.schedule.check import violations
from memplan.plan.checkpoint.schedule.figures import figures_of, unplanned
from memplan.plan.checkpoint.schedule.ordered import low_peak_order
from memplan.plan.checkpoint.schedule.records import (
    FeasibleSchedule,
    InfeasibleSchedule,
    NoSchedule,
    OptimalSchedule,
    RematGraph,
    Schedule,
    ScheduleResult,
)
from memplan.plan.checkpoint.schedule.solve import solve_schedule
from tests.plan.checkpoint.schedule.graphs import cheapest, graphs
from tests.plan.checkpoint.schedule.published import DATA, needs_data


def solve(graph: RematGraph, budget: int, *known: Schedule) -> ScheduleResult:
    return solve_schedule(graph, budget, time_limit=0.05, threads=1, known=known)


@given(graphs(most=5), st.integers(0, 50))
def test_every_answer_is_true(graph: RematGraph, budget: int):
    """Against Dijkstra over every order and every recomputation."""
    truth = cheapest(graph, budget)
    match solve(graph, budget):
        case OptimalSchedule() as found:
            assert not violations(
                graph, found.schedule, budget, cost=found.figures.cost, peak_bytes=found.figures.peak_bytes
            )
            assert found.figures.cost == pytest.approx(truth)
        case FeasibleSchedule() as found:
            assert not violations(
                graph, found.schedule, budget, cost=found.figures.cost, peak_bytes=found.figures.peak_bytes
            )
            assert truth is not None
            assert found.figures.cost >= truth - 1e-9
            if found.bound_for == "every schedule":
                assert found.bound_cost <= truth + 1e-6
        case InfeasibleSchedule() as found:
            assert truth is None
            assert found.least_bytes > budget
            assert cheapest(graph, found.least_bytes - 1) is None
        case NoSchedule() as found:
            assert found.best is not None
            assert found.best.figures.peak_bytes > budget


@given(graphs(), st.integers(0, 50))
@settings(max_examples=40)
def test_the_bound_holds_for_every_schedule(graph: RematGraph, budget: int):
    truth = cheapest(graph, budget)

    extra = least_extra_cost(graph, budget, time_limit=5.0, threads=1)

    if truth is not None:
        assert sum(graph.costs) + extra <= truth + 1e-6


@given(graphs(most=8), st.integers(0, 20))
@settings(max_examples=25)
def test_room_for_everything_costs_nothing(graph: RematGraph, more: int):
    figures = figures_of(graph, unplanned(graph))

    result = solve(graph, figures.peak_bytes + more)

    assert isinstance(result, OptimalSchedule)
    assert result.figures.cost == figures.cost


@given(graphs(most=8))
@settings(max_examples=20)
def test_more_budget_never_costs_more(graph: RematGraph):
    known: list[Schedule] = []
    last = math.inf
    for budget in range(0, figures_of(graph, unplanned(graph)).peak_bytes + 1, 4):
        result = solve(graph, budget, *known)
        if isinstance(result, OptimalSchedule | FeasibleSchedule):
            assert result.figures.cost <= last + 1e-9
            last = result.figures.cost
            known.append(result.schedule)
        else:
            assert last == math.inf


@given(graphs(most=10))
def test_a_better_order_is_an_order(graph: RematGraph):
    order = low_peak_order(graph)

    assert sorted(order) == list(range(len(graph.names)))
    assert not violations(graph, Schedule(nodes=order))
    assert figures_of(graph, Schedule(nodes=order)).peak_bytes <= figures_of(graph, unplanned(graph)).peak_bytes


def test_a_wide_beam_finds_the_lowest_peak():
    # Two chains into one: finishing the first before the second begins takes 10, side by side 18.
    graph = RematGraph(
        names=tuple("abcde"),
        sizes=(8, 8, 1, 1, 1),
        costs=(1.0,) * 5,
        predecessors=((), (), (0,), (1,), (2, 3)),
    )

    assert figures_of(graph, Schedule(nodes=low_peak_order(graph, width=10))).peak_bytes == 10


@given(graphs(most=8), st.integers(0, 40))
@settings(max_examples=20)
def test_without_haste_the_same_seed_gives_the_same_answer(graph: RematGraph, budget: int):
    first, second = (
        solve_schedule(graph, budget, time_limit=0.1, threads=1, seed=7, clock=lambda: 0.0) for _ in range(2)
    )

    assert first == second


def test_the_node_that_takes_too_much_is_named():
    graph = RematGraph(names=("a", "b"), sizes=(5, 7), costs=(1.0, 1.0), predecessors=((), (0,)), fixed_bytes=3)

    result = solve(graph, 14)

    assert result == InfeasibleSchedule(node=1, least_bytes=15)
    assert isinstance(solve(graph, 15), OptimalSchedule)


def test_what_cannot_be_computed_again_counts_as_well():
    # p runs once and is read at the end, so it is there when b is computed, next to a and b.
    graph = RematGraph(
        names=("p", "a", "b", "c"),
        sizes=(10, 2, 3, 1),
        costs=(1.0,) * 4,
        predecessors=((), (0,), (1,), (0, 2)),
        pinned=frozenset({0}),
    )

    assert solve(graph, 14) == InfeasibleSchedule(node=2, least_bytes=15)
    assert isinstance(solve(graph, 15), OptimalSchedule)


@needs_data
@pytest.mark.parametrize(("ratio", "overhead"), [(0.9, 0.00030), (0.8, 0.00137), (0.7, 0.00892)])
def test_fcn8_is_planned_as_well_as_published(ratio: float, overhead: float):
    """Published optima of Checkmate and Moccasin for CM1: 0.029, 0.136 and 0.892 %."""
    graph = read_instance(DATA / "fcn_8_vgg_32__416_608_3.json")
    before = figures_of(graph, unplanned(graph))
    budget = math.floor(ratio * before.peak_bytes)

    # A busy machine must not turn the figures into others.
    result = solve_schedule(graph, budget, time_limit=3.0, clock=time.process_time)

    assert isinstance(result, OptimalSchedule | FeasibleSchedule)
    assert not violations(
        graph, result.schedule, budget, cost=result.figures.cost, peak_bytes=result.figures.peak_bytes
    )
    assert result.figures.cost / before.cost - 1 <= overhead
